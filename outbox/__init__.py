"""Write events in your own Postgres transaction; they commit, or vanish, with your rows."""
