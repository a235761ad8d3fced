"""Wait until a consumer group has handled an event."""
