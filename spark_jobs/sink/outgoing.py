"""The records that an evaluation sends out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from outbox import envelope
from outbox.envelope import Pair, Record
from spark_jobs.sink.markers import Counts


class Outgoing(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Pair]
    timestamp: int
    """In milliseconds; 0: when it is written."""
    origin: Record
    """The record it comes from."""


class Evaluation(NamedTuple):
    """The result of the rows of a turn."""

    outgoing: list[Outgoing]
    counts: Counts
    misplaced: int = 0
    """Records that lay in a partition where their key does not belong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Where records go. Never taken from a record."""

    output: str
    retry: str
    dead_letter: str
    by_type: Mapping[str, str] = field(default_factory=dict)
    """Other topics in the place of `output`, for events of these types."""

    def of(self, headers: Iterable[Pair]) -> str:
        """Return the topic for a record that was handled, or for an output with `headers`."""
        if not self.by_type:
            return self.output
        type_ = next((value for name, value in headers if name == envelope.TYPE), None)
        return self.by_type.get((type_ or b"").decode(errors="replace"), self.output)
