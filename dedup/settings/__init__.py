"""Settings of a consumer, checked."""
