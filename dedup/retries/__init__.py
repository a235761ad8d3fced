"""What becomes of records that fail."""
