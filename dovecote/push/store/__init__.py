"""Keep subscriptions, notes and secrets in Postgres."""
