"""Describe classes of events as JSON Schemas, and say which change of them breaks whom."""
