"""Speak with Kafka on behalf of the relay."""
