"""Decide what becomes of processes that end, and what they are together."""
