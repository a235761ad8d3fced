"""
Detect that a topic multiplies its own records, before it fills the cluster.

Amplification is the number of records for each event and round: 1.0 if nothing comes twice. It is
counted over a sample of the keys, in windows of time.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias
from zlib import crc32

from outbox import envelope
from outbox.envelope import Record
from outbox.errors import DovecoteError
from outbox.event import Event

_SHARE = 16
"""One key in this many is sampled: all its records, or none."""

_ROOM = 50_000
"""Most events of a topic that are remembered; the window ends early when this is reached."""

_ENOUGH = 50
"""With fewer duplicates than this, a number is chance."""


_DIGITS = 9
"""More hops than these digits can say are a storm, whatever their number is."""


_Mark: TypeAlias = tuple[bytes | None, ...]


class Storm(DovecoteError):
    """A topic multiplies its own records: the consumer stops, and nothing more is committed."""


@dataclass(slots=True)
class _Window:
    began: float
    records: int = 0
    seen: dict[_Mark, int] = field(default_factory=dict)


@dataclass(slots=True)
class Amplification:
    """
    Number of records for each event, by topic; thread-safe.

    `limit` None: it is only counted.
    """

    limit: float | None = None
    window: float = 60.0
    """Length of a window in seconds."""

    share: int = _SHARE
    clock: Callable[[], float] = time.monotonic
    _windows: dict[str, _Window] = field(default_factory=dict, repr=False)
    _last: dict[str, float] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def sample(
        self,
        batch: Iterable[tuple[bytes | None, Sequence[Any]]],
        read: Callable[[Sequence[Any]], Iterable[Record]] | None = None,
    ) -> None:
        """
        Count the records of some keys, always the same ones, and of records without a key.

        `read` makes the records of what is in the batch; None: they are records.

        Raises:
            Storm: there are more than `limit` records for an event.
        """
        for key, records in batch:
            if key is None or crc32(key) % self.share == 0:
                for record in records if read is None else read(records):
                    self.saw(record)

    def saw(self, record: Record) -> None:
        """
        Count a record.

        Raises:
            Storm: there are more than `limit` records for an event.
        """
        mark = _mark(record)
        if mark is None:
            return  # a foreign record's id is its position, so it is a duplicate of nothing
        with self._lock:
            window = self._window(record.topic)
            window.records += 1
            window.seen[mark] = window.seen.get(mark, 0) + 1
            rate = window.records / len(window.seen)
            extra = window.records - len(window.seen)
            if self.limit is not None and rate > self.limit and extra >= _ENOUGH:
                msg = (
                    f"topic {record.topic!r} holds {rate:.1f} records for each event, more than "
                    f"the limit of {self.limit:g}: find out who puts them there again, then "
                    "restart, with a higher `retries.amplification_limit` if it is to go on"
                )
                raise Storm(msg)

    def report(self) -> dict[str, float]:
        """
        Return the amplification of each topic: of this window, or the last if this one is young.
        """
        with self._lock:
            return {
                topic: (
                    window.records / len(window.seen)
                    if len(window.seen) >= _ENOUGH or topic not in self._last
                    else self._last[topic]
                )
                for topic, window in self._windows.items()
                if window.seen
            }

    def _window(self, topic: str) -> _Window:
        window, now = self._windows.get(topic), self.clock()
        if window is None:
            window = self._windows[topic] = _Window(now)
        elif now - window.began > self.window or len(window.seen) >= _ROOM:
            if window.seen:
                self._last[topic] = window.records / len(window.seen)
            window = self._windows[topic] = _Window(now)
        return window


def hops(event: Event | Record) -> int:
    """Return how often an event was put on a topic again, or led to another event."""
    headers = dict(event.headers)
    return _number(headers.get(envelope.HOPS)) + _number(headers.get(envelope.ROUND))


def following(event: Event | Record) -> tuple[str, bytes]:
    """Return the header for an event that a handler makes from `event`: one hop more."""
    return envelope.HOPS, str(hops(event) + 1).encode()


def refusal(record: Record, limit: int | None) -> str | None:
    """Return why a record goes no further, if it has come round too often."""
    if limit is None or (came := hops(record)) <= limit:
        return None
    return f"storm: it has come round {came} times, and the limit is {limit}"


def _mark(record: Record) -> _Mark | None:
    found = dict(reversed(record.headers))
    id_ = found.get(envelope.ID)
    # With hops, it has the rounds of another group, which are no round here.
    rest = (envelope.SOURCE, envelope.ROUND, envelope.HOPS)
    return (id_, *map(found.get, rest)) if id_ else None


def _number(header: bytes | str | None) -> int:
    text = header.encode() if isinstance(header, str) else header or b""
    if not text.isdigit():
        return 0  # not a number that counts, so it is not ours
    return int(text) if len(text) <= _DIGITS else 10**_DIGITS
