"""Speak with Postgres on behalf of the relay."""
