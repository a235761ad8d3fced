"""Programs that the docs quote."""
