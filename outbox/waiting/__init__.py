"""Wait, on the caller's connection, until its events are published."""
