"""Decide what a token of the API may do."""
