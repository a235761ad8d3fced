"""A demonstration with real flights, from Postgres to a deduplicated topic."""
