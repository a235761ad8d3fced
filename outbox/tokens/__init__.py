"""Get tokens with which clients of Kafka show who they are, and renew them."""

from outbox.tokens.token import Token, TokenRefused

__all__ = ["Token", "TokenRefused"]
