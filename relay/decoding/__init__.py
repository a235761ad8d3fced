"""Turn bytes of the write-ahead log into events."""
