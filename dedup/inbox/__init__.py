"""Apply each event once, in the transaction of its effects."""
