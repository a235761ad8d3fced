"""Measure what an event costs as the work grows, and draw it."""
