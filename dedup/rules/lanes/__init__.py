"""Which record of a partition may be handled next, and which offset may be committed."""
