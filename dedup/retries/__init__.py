"""Decide about failed records: retry, dead letter, or skip."""
