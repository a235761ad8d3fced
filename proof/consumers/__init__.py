"""The proof of the consumer: killed, paused, joined and left, then counted."""
