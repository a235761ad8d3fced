"""
Errors that can stop a relay.

Each is a `RelayError`:

* Outage: a server is away or slow; the relay waits and goes on by itself
* Unpublishable: the broker refuses an event, which is parked
* Fenced: another relay took over; this one gives up the active role
* LeaseLost: Postgres gave the active role away; this relay stands by again
* Refused: going on could lose or repeat events; an operator must decide
"""

from collections.abc import Mapping, Sequence

from outbox.errors import DovecoteError
from relay.rules.parking import Reason, Scope
from relay.rules.row import ID, TOPIC, Row

_MISSING = "create the topic"
_LARGE = "raise `max.message.bytes` of the topic, and `message.max.bytes` in `[kafka]`"
_CONFIGURED = (
    "change the topic's configuration, which refuses it (a compacted one takes no event without "
    "a key, for example)"
)

ADVICE: Mapping[str, str] = {
    "UNKNOWN_TOPIC_OR_PART": _MISSING,
    "UNKNOWN_TOPIC": _MISSING,
    "UNKNOWN_PARTITION": _MISSING,
    "TOPIC_AUTHORIZATION_FAILED": "grant `Write` on the topic",
    "MSG_SIZE_TOO_LARGE": _LARGE,
    "RECORD_LIST_TOO_LARGE": "raise `segment.bytes` of the topic",
    "INVALID_RECORD": _CONFIGURED,
    "POLICY_VIOLATION": _CONFIGURED,
    "TOPIC_EXCEPTION": "drop the event: no topic can have that name",
    "TOPIC_NOT_ALLOWED": "add the topic to `topics`, or drop the event",
    "TOPIC_RESERVED": (
        "somebody tries to forge progress, and the event is to be dropped; or `progress_topic` is "
        "a topic that services write to, and is to be another"
    ),
}
"""Advice for a refused event, by the code of the reason."""


class RelayError(DovecoteError):
    """The base class of errors that can stop a relay."""


class Outage(RelayError):
    """A server is away or slow. Nothing is lost, and the relay tries again by itself."""


class Unpublishable(RelayError):
    """
    The broker refuses an event because of its content or its topic; nothing is lost.

    `before` is how many events of the batch come before it. `request_bytes` is the size of the
    keys and values of all events that were refused with it. The broker would refuse those in
    `alike` for the same reason.
    """

    def __init__(
        self,
        row: Row,
        reason: Reason,
        *,
        scope: Scope = Scope.EVENT,
        before: int = 0,
        request_bytes: int = 0,
        alike: Sequence[Row] = (),
    ) -> None:
        super().__init__(
            f"event {row[ID]} for topic {row[TOPIC]!r} cannot be published ({reason.text}); "
            f"{ADVICE[reason.code]}"
        )
        self.row, self.reason, self.scope, self.before = row, reason, scope, before
        self.request_bytes, self.alike = request_bytes, alike


class Fenced(RelayError):
    """Another relay has taken the transactional.id; what this one had in flight was aborted."""


class LeaseLost(RelayError):
    """The session that held the active role has ended."""


class Refused(RelayError):
    """Going on could lose or repeat events; the message says what to do."""
