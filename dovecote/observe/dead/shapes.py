"""The shapes of a list of dead letters, and of what became of each letter."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

What: TypeAlias = Literal["requeued", "dropped", "asked", "left"]
"""`asked`: the relay was asked, and does it; `left`: it stays, and `why` says why."""

MOST_SHOWN = 2_000
"""The most bytes of a value, or of a header's, that a list has; `show` has all of them."""


class Ref(NamedTuple):
    """Names one letter."""

    part: str
    """`consumer/shipping`, `spark/sessions`, `push/main/SUBSCRIPTION` or `outbox/shop`."""
    place: str
    """Topic, partition and offset of the letter; of a parked event its outbox's name and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects letters: those that match all of this; empty or None: any."""

    parts: Sequence[str] = ()
    """Parts, or the beginnings of their names: `consumer/shipping`, `push/main`, `push`."""
    ids: Sequence[str] = ()
    """Ids of events, or their names: `id@source`."""
    topic: str | None = None
    """The topic that the event comes from, or is for; not the dead-letter topic."""
    key: bytes | None = None
    type: str | None = None
    reason: str | None = None
    """Part of the reason, in upper or lower case."""
    since: datetime | None = None
    """Given up at this time or later."""
    until: datetime | None = None
    """Given up before this time."""
    where: str | None = None
    """An expression that holds for the event, as `dovecote topic tail --where` takes it."""

    @property
    def is_narrowed(self) -> bool:
        """Whether it selects less than all letters."""
        return self != Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter or a parked event."""

    part: str
    place: str
    topic: str
    """The topic that the event comes from, or is for."""
    key: bytes | None
    id: str
    source: str
    type: str | None
    """None: the record does not say."""
    at: datetime
    """When it was given up."""
    reason: str
    attempts: int
    value: bytes | None
    """At most `MOST_SHOWN` bytes of it in a list; None: it has none, or it is elsewhere."""
    size: int
    """Bytes of the value in all."""
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def ref(self) -> Ref:
        """Its name among all letters."""
        return Ref(self.part, self.place)

    def told(self) -> dict[str, object]:
        """Return its fields; keys, values and headers are bytes."""
        return {
            "part": self.part,
            "place": self.place,
            "topic": self.topic,
            "key": self.key,
            "id": self.id,
            "source": self.source,
            "type": self.type,
            "at": self.at.isoformat(),
            "reason": self.reason,
            "attempts": self.attempts,
            "size": self.size,
            "value": self.value,
            "headers": list(self.headers),
        }


class Failure(NamedTuple):
    """A part that could not be asked."""

    part: str
    error: str


class Looked(NamedTuple):
    """A part, and how much of it was looked at."""

    part: str
    records: int
    """Records, or letters where the part has nothing else."""
    whole: bool
    """Whether that is all that there is within the times that were asked for."""
    said: str
    """The same as a sentence."""


class Page(NamedTuple):
    """The newest letters of all parts, and where to go on."""

    letters: Sequence[Letter]
    """The newest first."""
    failures: Sequence[Failure]
    looked: Sequence[Looked]
    next: str | None
    """Continue with this as `after`; None: there are no more, as far as was looked."""


class Fate(NamedTuple):
    """One letter, and what became of it."""

    part: str
    place: str
    id: str
    what: What
    why: str = ""
    """Why it stays."""
