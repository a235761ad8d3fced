"""A service, `push`, and a receiver that verifies signatures."""
