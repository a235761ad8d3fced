"""Decide where an event is, from what its parts say."""
