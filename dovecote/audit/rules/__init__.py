"""Decide what was lost, doubled, out of order or late; no server, no clock."""
