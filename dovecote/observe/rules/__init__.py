"""Decide what is shown of records, and from where on they are read."""
