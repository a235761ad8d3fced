"""Look at topics and events from outside, through what Kafka shows to any client."""
