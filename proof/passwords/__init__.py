"""The proof that passwords of Postgres may change while every part runs."""
