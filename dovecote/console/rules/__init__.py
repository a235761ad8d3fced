"""Decide from samples what state each part is in, what is wrong, and what the picture shows."""
