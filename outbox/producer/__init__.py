"""Publish events to Kafka directly, or through the outbox while Kafka does not answer."""
