"""Decide by what a Postgres server says of its slots, tables and standbys."""
