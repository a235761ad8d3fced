"""What a request holds, and what its answer means."""
