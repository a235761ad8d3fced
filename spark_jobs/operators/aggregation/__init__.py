"""Aggregate events by declared steps."""
