"""Read what was committed to the write-ahead log, from a replication slot of the auditor's own."""
