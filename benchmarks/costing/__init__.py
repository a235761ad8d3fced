"""Measure what the parts cost beside the events that they handle."""
