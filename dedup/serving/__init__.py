"""Hand records to handlers, in threads or on an event loop."""
