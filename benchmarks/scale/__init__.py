"""Measure the cost of an event as the work grows, and draw it."""
