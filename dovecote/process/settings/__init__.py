"""Settings of one process, checked by a pydantic model."""
