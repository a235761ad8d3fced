"""The job that keeps state for an operator."""
