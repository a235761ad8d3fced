"""Compose a request, and judge its answer."""
