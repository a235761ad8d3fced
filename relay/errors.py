"""
What can stop a relay.

RelayError
├── Outage          a server is away or slow; the relay waits and goes on by itself
├── Unpublishable   the broker refuses an event; it is waited for a while, then parked
├── Full            too many events are parked; nothing more is until there is room
├── Fenced          another relay took over; this one gives up the active role
├── LeaseLost       Postgres gave the active role away; this relay stands by again
└── Refused         going on could lose or repeat events; an operator must decide
"""

from outbox.errors import DovecoteError
from relay.capture.batch import Row
from relay.parking import Reason, Scope


class RelayError(DovecoteError):
    """The base of what can stop a relay."""


class Outage(RelayError):
    """A server is away or slow; nothing is lost, the relay tries again by itself."""


class Unpublishable(RelayError):
    """
    The broker refuses an event for what it is, or for its topic; nothing is lost.

    `before` is how many events of the batch come before it, `request_bytes` how large the keys and
    values are of all that were refused with it.
    """

    def __init__(
        self,
        row: Row,
        reason: Reason,
        *,
        scope: Scope = Scope.EVENT,
        before: int = 0,
        request_bytes: int = 0,
    ) -> None:
        super().__init__(
            f"event {row[1]} for topic {row[3]!r} cannot be published ({reason.text}); create "
            "the topic, raise its max.message.bytes or grant access"
        )
        self.row, self.reason, self.scope, self.before = row, reason, scope, before
        self.request_bytes = request_bytes


class Full(RelayError):
    """As many events are parked as may be; something larger is wrong."""


class Fenced(RelayError):
    """Another relay has the transactional.id; what this one had in flight was aborted."""


class LeaseLost(RelayError):
    """The session that held the active role has ended."""


class Refused(RelayError):
    """Going on could lose or repeat events; the message has the way out."""
