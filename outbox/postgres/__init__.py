"""Sessions of our own with Postgres, and how long one of them may stay silent."""
