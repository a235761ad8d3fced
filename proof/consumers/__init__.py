"""The proof of the consumer: members are killed, paused, added and removed; then count."""
