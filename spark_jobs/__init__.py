"""Deduplicate, pair, session and aggregate topics in Spark."""
