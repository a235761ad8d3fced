"""Which records of a key count, and what a handler says of one."""
