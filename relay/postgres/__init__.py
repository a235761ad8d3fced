"""What the relay asks of Postgres and stores there."""
