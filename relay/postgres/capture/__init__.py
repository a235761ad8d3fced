"""Read committed events, from the table or from the write-ahead log."""
