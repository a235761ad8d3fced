"""Programs that write or handle events within another library; docs/bridges explains each."""
