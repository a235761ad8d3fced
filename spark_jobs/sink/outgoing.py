"""The records that an evaluation sends out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeAlias, overload

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


Written: TypeAlias = tuple[
    str, bytes | None, bytes | None, list[Pair] | dict[str, bytes | None], int
]
"""The parts of a record that a producer takes: topic, key, value, headers and timestamp."""


@dataclass(frozen=True, slots=True)
class Results(Sequence[Outgoing]):
    """
    Records by columns that differ in no header but their id.

    A record is made when it is asked for, and writing asks for none.
    """

    common: list[Pair]
    """The headers after the id; no two have the same name."""
    topics: Sequence[str]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    ids: Sequence[bytes]
    timestamps: Sequence[int]
    sources: Sequence[str]
    partitions: Sequence[int]
    offsets: Sequence[int]

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, row: int) -> Outgoing: ...
    @overload
    def __getitem__(self, row: slice) -> list[Outgoing]: ...
    def __getitem__(self, row: int | slice) -> Outgoing | list[Outgoing]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        key, time = self.keys[row], self.timestamps[row]
        headers = [(envelope.ID, self.ids[row]), *self.common]
        place = self.sources[row], self.partitions[row], self.offsets[row]
        origin = Record(*place, time, key, None, headers)
        return Outgoing(self.topics[row], key, self.values[row], headers, time, origin)

    def written(self) -> Iterator[Written]:
        """Yield what a producer takes; the headers are valid until the next record."""
        headers: dict[str, bytes | None] = {envelope.ID: None, **dict(self.common)}
        for topic, key, value, id_, time in zip(
            self.topics, self.keys, self.values, self.ids, self.timestamps, strict=True
        ):
            headers[envelope.ID] = id_
            yield topic, key, value, headers, time


@dataclass(frozen=True, slots=True)
class Joined(Sequence[Outgoing]):
    """Sequences of records, one after the other."""

    parts: Sequence[Sequence[Outgoing]]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Outgoing]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, row: int) -> Outgoing: ...
    @overload
    def __getitem__(self, row: slice) -> list[Outgoing]: ...
    def __getitem__(self, row: int | slice) -> Outgoing | list[Outgoing]:
        return list(self)[row]


def written(outgoing: Iterable[Outgoing]) -> Iterator[Written]:
    """Yield what a producer takes of each record; headers are valid until the next one."""
    if isinstance(outgoing, Joined):
        return chain.from_iterable(map(written, outgoing.parts))
    if isinstance(outgoing, Results):
        return outgoing.written()
    return map(_WRITTEN, outgoing)


_WRITTEN: Callable[[Outgoing], Written] = itemgetter(slice(5))


class Evaluation(NamedTuple):
    """The result of the rows of a turn."""

    outgoing: Sequence[Outgoing]
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
