"""A producer's options, and the state that it reports."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

from outbox.errors import BadSettings
from outbox.event import Limits

Counted: TypeAlias = Literal["kafka", "outbox", "refused", "broken", "restored"]
"""
Events accepted by either, or by neither; Kafka producers that stopped, and that were made anew.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How long to wait for Kafka and the outbox, and how much may wait."""

    delivery_timeout: timedelta = timedelta(seconds=10)
    """An event that the broker has not acknowledged after this time goes into the outbox."""

    accept_timeout: timedelta = timedelta(seconds=30)
    """An event is given up if the outbox has not taken it either, this long after it was sent."""

    max_events: int = 10_000
    """At most this many events wait to be accepted; then `send` waits."""

    max_bytes: int = 32 * 1024 * 1024
    """At most this many bytes of events wait; then `send` waits."""

    limits: Limits = field(default_factory=Limits)
    """The most bytes of one event, as for `outbox.write`."""

    fresh: bool = False
    """The outbox holds nothing that was sent before: do not wait until it has drained."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for name in ("delivery_timeout", "accept_timeout"):
            given = getattr(self, name)
            if not isinstance(given, timedelta):
                msg = f"{name} must be a timedelta, such as timedelta(seconds=4), not {given!r}"
                raise BadSettings(msg)
        if not timedelta(0) < self.delivery_timeout < self.accept_timeout:
            msg = (
                "need 0 < delivery_timeout < accept_timeout, not "
                f"{self.delivery_timeout} and {self.accept_timeout}"
            )
            raise BadSettings(msg)
        if self.max_events < 1 or self.max_bytes < 1:
            msg = f"max_events {self.max_events} and max_bytes {self.max_bytes} must be positive"
            raise BadSettings(msg)


class RouteState(NamedTuple):
    """How a producer is doing."""

    broker: Literal["up", "down"]
    waiting: int
    """Events that nobody has accepted yet."""
    waiting_bytes: int
    lanes: int
    """Keys that go through the outbox; one, if all of them do."""
    kafka_trouble: str | None
    """Why events do not reach Kafka …"""
    outbox_trouble: str | None
    """… and Postgres, as far as it was needed."""
