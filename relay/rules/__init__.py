"""Decide what is published, parked or refused, and touch nothing."""
