"""Serve HTTP within bounds, and ask others over it."""
