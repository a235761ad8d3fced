"""
What can stop a relay.

RelayError
├── Outage          a server is away or slow; the relay waits and goes on by itself
├── Unpublishable   the broker refuses an event; it waits, nothing behind it is published
├── Fenced          another relay took over; this one gives up the active role
├── LeaseLost       Postgres gave the active role away; this relay stands by again
└── Refused         going on could lose or repeat events; an operator must decide
"""

from outbox.errors import DovecoteError


class RelayError(DovecoteError):
    """The base of what can stop a relay."""


class Outage(RelayError):
    """A server is away or slow; nothing is lost, the relay tries again by itself."""


class Unpublishable(RelayError):
    """
    The broker refuses an event for what it is; everything waits behind it, nothing is lost.

    `before` is how many events of the batch come before it.
    """

    def __init__(self, message: str, *, before: int = 0) -> None:
        super().__init__(message)
        self.before = before


class Fenced(RelayError):
    """Another relay has the transactional.id; what this one had in flight was aborted."""


class LeaseLost(RelayError):
    """The session that held the active role has ended."""


class Refused(RelayError):
    """Going on could lose or repeat events; the message has the way out."""
