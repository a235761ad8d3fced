"""Pair the opening and the closing event of a call."""
