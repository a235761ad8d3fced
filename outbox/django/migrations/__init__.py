"""One migration of Django for each version of the schema."""
