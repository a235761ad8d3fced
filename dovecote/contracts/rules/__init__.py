"""Decide what a change of a contract does to readers, and what documents say of contracts."""
