"""Say of which topics and keys too many events are parked, and what resolves it."""

from collections.abc import Sequence
from dataclasses import dataclass

ADVICE = (
    "nothing is lost and others go on; resolve the cause and `dovecote relay parked requeue`, or "
    "stop the writer: `dovecote init outbox --writer-role ROLE --topics …` restricts its topics"
)
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Crowd:
    """The parked events of a topic, or of one key of it."""

    topic: str
    key: bytes | None
    """The first bytes of the key; None: the whole topic."""
    events: int
    waiting: int
    """How many of them only wait for an earlier one of their key."""

    @property
    def place(self) -> tuple[str, bytes | None]:
        return self.topic, self.key

    def said(self, limits: "Limits") -> str:
        """Return what an operator reads of it."""
        if self.key is None:
            where, name, most = "", "park_most", limits.topic
        else:
            shown = self.key[:_SHOWN].decode(errors="backslashreplace")
            where, name, most = f", key {shown!r}", "park_most_of_key", limits.key
        return (
            f"{self.events} events of topic {self.topic!r}{where} are parked, {self.waiting} of "
            f"them only wait for an earlier one, and {name} is {most}"
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """The most parked events of a topic and of a key, beyond which an operator hears of them."""

    topic: int
    key: int


NO_LIMITS = Limits(1 << 62, 1 << 62)


@dataclass(frozen=True, slots=True)
class Census:
    """The parked events of an outbox, counted."""

    events: int = 0
    waiting: int = 0
    topics: Sequence[Crowd] = ()
    """Topics beyond their limit, the fullest first; a part of them if there are many."""
    keys: Sequence[Crowd] = ()
    """The same of keys."""

    @property
    def crowds(self) -> Sequence[Crowd]:
        return [*self.topics, *self.keys]
