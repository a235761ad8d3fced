"""Group the events of a key into sessions."""
