"""Run a policy over recorded records again, and show each decision."""
