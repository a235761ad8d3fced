"""Check events against committed contracts where they are written."""

from outbox.contracts.enforcing import Mode, enforce

__all__ = ["Mode", "enforce"]
