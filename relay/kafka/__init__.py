"""What the relay sends to Kafka and asks of it."""
