"""Run a streaming query: its session, source, progress, health and metrics."""
