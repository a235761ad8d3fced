"""Publish the outbox to Kafka, exactly once and in order per key."""
