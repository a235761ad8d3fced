"""Check a subscription and its parts."""
