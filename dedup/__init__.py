"""Decide, per key and without I/O, which records are handled and why the others are not."""
