"""Postgres servers for development and tests."""
