"""Disturb real servers and relays for any length of time, then count: `make proof`."""
