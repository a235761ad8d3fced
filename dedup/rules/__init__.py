"""Decide what becomes of records, and touch nothing."""
