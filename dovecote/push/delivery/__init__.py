"""Take records from Kafka, send them, and wait for the answers."""
