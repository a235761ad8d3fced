"""Places in the outbox, and whether progress may go on from one."""
