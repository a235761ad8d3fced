"""Measure Dovecote and its peers on the same work, in turn: a module for each kind of work."""
