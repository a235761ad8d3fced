"""The deduplicating job: one policy per key and batch."""
