"""Run scripts for keys, triggers and aggregates in a limited process."""
