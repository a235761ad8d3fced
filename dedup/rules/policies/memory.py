"""
Which events were taken a while ago: copies told from the records alone, batch after batch.

A record is a copy if the last one of its identity that was taken has a timestamp no further from
its own than `within`. That is said of two records, so it does not depend on where batches end or
on when they are processed. What was taken is forgotten when its partition has moved on by more
than twice that: what comes so late is taken again rather than lost.
"""

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple, Self, TypeAlias

import msgpack

from dedup.rules.policies.policies import Identity
from outbox.errors import DovecoteError

FORMAT = 1
_DIGEST = 16
# A time and the number of a partition are one integer, so that a million of them are one array.
_PARTITIONS = 1 << 16

Stream: TypeAlias = tuple[str, int]
"""Topic and partition."""


class BadMemory(DovecoteError):
    """Bytes that are no memory, or of a format that nobody knows."""


class Seen(NamedTuple):
    """A record, as far as it is remembered."""

    identity: Identity | None
    """None: it is a copy of nothing."""
    timestamp: int
    """In milliseconds."""
    stream: Stream


class Memory:
    """What was taken. The records of a stream come in the order of their offsets."""

    def __init__(self, within: int) -> None:
        """`within` in milliseconds."""
        self._within = within
        self._taken: dict[bytes, int] = {}
        self._streams: dict[Stream, int] = {}
        self._newest: list[int] = []
        """The newest timestamp of each stream."""
        self._swept: list[int] = []
        """Where that stood when the stream was last looked through."""

    def __len__(self) -> int:
        return len(self._taken)

    def copies(self, records: Iterable[Seen], now: int = 0) -> Iterator[bool]:
        """
        Say of each of `records` whether it is a copy; what is none is taken.

        `now`, in milliseconds, if it is known: a timestamp of the future moves nothing beyond it.
        """
        taken, newest, within = self._taken, self._newest, self._within
        for identity, time, stream in records:
            number = self._streams.get(stream)
            if number is None:
                number = self._number(stream, time)
            reached = min(time, now) if now else time
            if reached > newest[number]:  # noqa: PLR1730  # a call costs more
                newest[number] = reached
            if identity is None:
                yield False
                continue
            mark = _mark(identity)
            before = taken.get(mark)
            if before is not None:
                at, of = divmod(before, _PARTITIONS)
                if abs(time - at) <= within and newest[of] - at <= 2 * within:
                    yield True
                    continue
            if newest[number] - time <= 2 * within:
                taken[mark] = time * _PARTITIONS + number
            yield False
        self._sweep()

    def _number(self, stream: Stream, time: int) -> int:
        number = self._streams[stream] = len(self._streams)
        if number >= _PARTITIONS:
            msg = f"more than {_PARTITIONS} partitions: they cannot be told apart"
            raise BadMemory(msg)
        self._newest.append(time)
        self._swept.append(time)
        return number

    def _sweep(self) -> None:
        """Drop what is forgotten; seldom, for all has to be looked through."""
        moved = zip(self._newest, self._swept, strict=True)
        if all(newest - swept <= self._within // 4 for newest, swept in moved):
            return
        oldest = [newest - 2 * self._within for newest in self._newest]
        self._taken = {
            mark: at
            for mark, at in self._taken.items()
            if at // _PARTITIONS >= oldest[at % _PARTITIONS]
        }
        self._swept = list(self._newest)

    def encode(self) -> bytes:
        """Return all of it as bytes."""
        streams = [
            [*stream, newest, swept]
            for stream, newest, swept in zip(self._streams, self._newest, self._swept, strict=True)
        ]
        times = array("q", self._taken.values())
        data: bytes = msgpack.packb([FORMAT, streams, b"".join(self._taken), times.tobytes()])
        return data

    @classmethod
    def decode(cls, within: int, data: bytes) -> Self:
        """
        Return the memory that `data` holds; `within` may be another than it was.

        Raises:
            BadMemory: it holds none.
        """
        try:
            number, streams, marks, times = msgpack.unpackb(data)
        except (ValueError, TypeError) as error:
            msg = f"not a memory: {error}"
            raise BadMemory(msg) from error
        if number != FORMAT:
            msg = f"the memory has format {number}; this version reads {FORMAT}"
            raise BadMemory(msg)
        found = cls(within)
        for place, (topic, partition, newest, swept) in enumerate(streams):
            found._streams[topic, partition] = place
            found._newest.append(newest)
            found._swept.append(swept)
        at = array("q", times)
        found._taken = {
            marks[place * _DIGEST : (place + 1) * _DIGEST]: time for place, time in enumerate(at)
        }
        return found


def _mark(identity: Identity) -> bytes:
    return blake2b(f"{identity[1]}/{identity[0]}".encode(), digest_size=_DIGEST).digest()
