"""Decode the values of events."""
