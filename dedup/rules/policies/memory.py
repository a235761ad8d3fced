"""
Which events were taken before: tells duplicates from the records alone, across batches.

A record is a duplicate if the last record with its identity that was taken has a timestamp within
`within` of its own. This compares two records, so it does not depend on where batches end or on
when they are processed. An identity is forgotten when its partition has moved on by more than
twice `within`: a record that comes so late is taken again rather than lost.
"""

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple, Self, TypeAlias

from dedup.rules.identity import Identity
from outbox.errors import DovecoteError
from outbox.timestamps import END_OF_TIME, milliseconds

FORMAT = 2
DELTA = 3
"""The format of what has changed in a memory."""
_BY_ID = 1
"""The format of memories whose marks are of ids and rounds alone, and of no sources."""
_DIGEST = 16
# A time and a partition's number share one integer, so that a million of them are one array.
_PARTITIONS = 1 << 16
# A timestamp further ahead of the clock than an hour is wrong. Kept as it is, it would be
# remembered until its partition comes to that time.
_AHEAD = 3_600_000

Stream: TypeAlias = tuple[str, int]
"""Topic and partition."""


class BadMemory(DovecoteError):
    """Bytes that are not an encoded memory, or in an unknown format."""


class Seen(NamedTuple):
    """A record, as far as it is remembered."""

    identity: Identity | None
    """None: it is a duplicate of nothing."""
    timestamp: int
    """As the record has it."""
    stream: Stream


class Memory:
    """
    The identities that were taken. The records of a stream come in the order of their offsets.
    """

    def __init__(self, within: int) -> None:
        """`within` in milliseconds."""
        self._within = within
        self._taken: dict[bytes, int] = {}
        self._by_id: dict[bytes, int] = {}
        """The marks that an earlier version made; empty as soon as all of them are forgotten."""
        self._streams: dict[Stream, int] = {}
        self._newest: list[int] = []
        """The newest timestamp of each stream."""
        self._swept: list[int] = []
        """The newest timestamp of each stream when it was last swept."""
        self._stored: int | None = None
        """How many of the first marks are as they were settled; None: none of them."""

    def __len__(self) -> int:
        return len(self._taken) + len(self._by_id)

    def duplicates(self, records: Iterable[Seen], now: int = 0) -> Iterator[bool]:
        """
        Yield for each of `records` whether it is a duplicate; take those that are not.

        `now`, in milliseconds, if it is known: a timestamp in the future moves its partition to
        `now` only, and one more than an hour ahead counts as `now`.
        """
        latest = now + _AHEAD if now else END_OF_TIME - 1
        taken, by_id = self._taken, self._by_id
        newest, within = self._newest, self._within
        if now:
            self._bound(now)
        for identity, time, stream in records:
            if not 0 <= time <= latest:
                time = _believed(time, now)  # noqa: PLW2901  # the same in milliseconds
            reached = min(time, now) if now else time
            number = self._streams.get(stream)
            if number is None:
                number = self._number(stream, reached)
            if reached > newest[number]:  # noqa: PLR1730  # a call costs more
                newest[number] = reached
            if identity is None:
                yield False
                continue
            mark = _mark(identity)
            before = taken.get(mark, by_id.get(_mark_by_id(identity)) if by_id else None)
            if before is not None:
                at, of = divmod(before, _PARTITIONS)
                if abs(time - at) <= within and newest[of] - at <= 2 * within:
                    yield True
                    continue
                self._move(mark)
            if newest[number] - time <= 2 * within:
                taken[mark] = time * _PARTITIONS + number
            yield False
        self._sweep()

    def _bound(self, now: int) -> None:
        """Move times back to `now` that a wrong clock has set."""
        for times in (self._newest, self._swept):
            times[:] = [min(each, now) for each in times]

    def _number(self, stream: Stream, time: int) -> int:
        number = self._streams[stream] = len(self._streams)
        if number >= _PARTITIONS:
            msg = f"more than {_PARTITIONS} partitions: they cannot be told apart"
            raise BadMemory(msg)
        self._newest.append(time)
        self._swept.append(time)
        return number

    def _move(self, mark: bytes) -> None:
        """Move a mark that is taken again to the newest ones."""
        if mark in self._taken:
            self._taken[mark] = self._taken.pop(mark)
            self._stored = self._stored and self._stored - 1

    def _sweep(self) -> None:
        """Drop what may be forgotten; rarely, because this looks through everything."""
        moved = zip(self._newest, self._swept, strict=True)
        if all(newest - swept <= self._within // 4 for newest, swept in moved):
            return
        oldest = [newest - 2 * self._within for newest in self._newest]
        self._taken, self._by_id = (
            {mark: at for mark, at in of.items() if at // _PARTITIONS >= oldest[at % _PARTITIONS]}
            for of in (self._taken, self._by_id)
        )
        self._swept = list(self._newest)
        self._stored = None

    def settle(self, *, is_all: bool = False) -> None:
        """
        Note that all that is known now is stored.

        `is_all`: nobody will ask for what changes, because the whole memory is stored each time.
        """
        self._stored = None if is_all else len(self._taken)

    def delta(self) -> tuple[bytes, int] | None:
        """
        Return what has changed since the memory was settled, and how many marks that has.

        None: it is more than half of the memory, or something was forgotten.
        """
        import msgpack

        if self._stored is None or 2 * (count := len(self._taken) - self._stored) > len(self):
            return None
        newest = dict(reversed([*islice(reversed(self._taken.items()), count)]))
        data: bytes = msgpack.packb([DELTA, self._told(), *_columns(newest)])
        return data, count

    def apply(self, data: bytes) -> None:
        """
        Make the changes that `delta` has returned for the memory that this one was then.

        Raises:
            BadMemory: they are no such changes.
        """
        import msgpack

        try:
            number, streams, marks, times = msgpack.unpackb(data)
        except (ValueError, TypeError) as error:
            msg = f"not the changes of a memory: {error}"
            raise BadMemory(msg) from error
        if number != DELTA:
            msg = f"the changes have format {number}; this version reads {DELTA}"
            raise BadMemory(msg)
        self._listen(streams)
        for mark, time in _marks(marks, times).items():
            self._taken.pop(mark, None)
            self._taken[mark] = time

    def encode(self) -> bytes:
        """Return the whole memory as bytes."""
        import msgpack

        marks = *_columns(self._taken), *_columns(self._by_id)
        data: bytes = msgpack.packb([FORMAT, self._told(), *marks])
        return data

    def _told(self) -> list[list[object]]:
        """Return the streams in a form that can be stored."""
        told = zip(self._streams, self._newest, self._swept, strict=True)
        return [[*stream, newest, swept] for stream, newest, swept in told]

    def _listen(self, streams: Iterable[tuple[str, int, int, int]]) -> None:
        """Take over what was told of streams."""
        self._streams, self._newest, self._swept = {}, [], []
        for place, (topic, partition, newest, swept) in enumerate(streams):
            self._streams[topic, partition] = place
            self._newest.append(newest)
            self._swept.append(swept)

    @classmethod
    def decode(cls, within: int, data: bytes) -> Self:
        """
        Return the memory in `data`; `within` may differ from the one at encoding.

        Raises:
            BadMemory: it holds none.
        """
        import msgpack

        try:
            number, streams, *columns = msgpack.unpackb(data)
        except (ValueError, TypeError) as error:
            msg = f"not a memory: {error}"
            raise BadMemory(msg) from error
        if (number, len(columns)) not in {(_BY_ID, 2), (FORMAT, 4)}:
            msg = f"the memory has format {number}; this version reads {_BY_ID} and {FORMAT}"
            raise BadMemory(msg)
        found = cls(within)
        found._listen(streams)
        found._by_id = _marks(*columns[-2:])
        if number == FORMAT:
            found._taken = _marks(*columns[:2])
        return found


def _believed(time: int, now: int) -> int:
    """Return the time that counts for a record whose timestamp is in another unit, or is none."""
    found = milliseconds(time)
    return now if found is None or (now and found > now + _AHEAD) else found


def _columns(of: dict[bytes, int]) -> tuple[bytes, bytes]:
    return b"".join(of), array("q", of.values()).tobytes()


def _marks(marks: bytes, times: bytes) -> dict[bytes, int]:
    return {
        marks[place * _DIGEST : (place + 1) * _DIGEST]: time
        for place, time in enumerate(array("q", times))
    }


def _mark(identity: Identity) -> bytes:
    source, id_, round_ = identity
    text = f"{round_}/{len(source)}/{source}{id_}"
    return blake2b(text.encode(), digest_size=_DIGEST).digest()


def _mark_by_id(identity: Identity) -> bytes:
    return blake2b(f"{identity.round}/{identity.id}".encode(), digest_size=_DIGEST).digest()
