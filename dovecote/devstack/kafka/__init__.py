"""Kafka brokers for development and tests, and the Java they need."""
