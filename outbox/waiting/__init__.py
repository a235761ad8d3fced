"""Wait until events that are committed are published."""
