"""
The rows of one shuffle partition as columns, taken from Spark's Arrow batches.

Read row by row, Arrow's headers would cost more than everything else together. So ids and rounds
are read from the flattened columns, and a row's record is only put together on demand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dedup.rules.policies import decode
from dedup.rules.policies.policies import Identity
from outbox.envelope import (
    ATTEMPT,
    ERROR,
    FIRST_SEEN,
    ID,
    NOT_BEFORE,
    ORIGIN,
    ROUND,
    Pair,
    Record,
)

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a row."""

NOW = "now"
"""Another column, which may have Spark's clock of the micro-batch, in milliseconds."""

_DELIVERY = pa.array([ATTEMPT, ROUND, FIRST_SEEN, NOT_BEFORE, ORIGIN, ERROR])

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in the order of key, topic, partition and offset."""

    # Lists, not arrays: reading one element of an array costs ten times as much.
    topics: list[str]
    partitions: list[int]
    offsets: list[int]
    timestamps: list[int]
    """Milliseconds since 1970."""
    keys: list[bytes | None]
    values: list[bytes | None]
    header_names: list[str]
    header_values: list[bytes | None]
    header_bounds: list[int]
    """The headers of row i are those from `header_bounds[i]` up to `header_bounds[i + 1]`."""
    identities: list[Identity]
    now: int = 0
    """
    The wall clock of the micro-batch in milliseconds, the same each time it is run; 0: unknown.
    """

    def __len__(self) -> int:
        return len(self.topics)

    def headers(self, row: int) -> list[Pair]:
        first, last = self.header_bounds[row], self.header_bounds[row + 1]
        return list(
            zip(self.header_names[first:last], self.header_values[first:last], strict=True)
        )

    def record(self, row: int) -> Record:
        return Record(
            self.topics[row],
            self.partitions[row],
            self.offsets[row],
            self.timestamps[row],
            self.keys[row],
            self.values[row],
            self.headers(row),
        )

    def identity(self, row: int) -> Identity:
        return self.identities[row]

    def copies(self, rows: Sequence[int], of: Identity) -> int:
        return sum(self.identities[row] == of for row in rows)

    def fingerprint(self, row: int) -> bytes | None:
        return self.values[row]

    def digest(self) -> str:
        """Return a digest of the rows' places: the same for the same rows, however they came."""
        digest = blake2b(digest_size=16)
        names, codes = self._topics()
        digest.update("\n".join(names).encode())
        for column in (codes, self.partitions, self.offsets, self.timestamps):
            digest.update(np.asarray(column, dtype="<i8").tobytes())
        return digest.hexdigest()

    def _topics(self) -> tuple[list[str], Array]:
        """
        Return the topics in alphabetical order, and the index of each row's topic among them.
        """
        names = sorted(set(self.topics))
        numbers = {name: number for number, name in enumerate(names)}
        return names, np.asarray([numbers[topic] for topic in self.topics])


def read(batches: Iterable[pa.RecordBatch]) -> Rows | None:
    """
    Return the rows in `batches`, or None if there are none.

    Batches end anywhere: a key may begin in one and go on in the next.
    """
    now = 0
    parts: list[_Part] = []
    for batch in batches:
        if batch.num_rows:
            now = now or _clock(batch)
            parts.append(_part(batch))
    if not parts:
        return None
    starts = np.cumsum([0, *(len(part.header_names) for part in parts)])
    bounds = [part.header_bounds + start for part, start in zip(parts, starts[:-1], strict=True)]
    rows = Rows(
        topics=_joined(part.topics for part in parts),
        partitions=_joined(part.partitions for part in parts),
        offsets=_joined(part.offsets for part in parts),
        timestamps=_joined(part.timestamps for part in parts),
        keys=_joined(part.keys for part in parts),
        values=_joined(part.values for part in parts),
        header_names=_joined(part.header_names for part in parts),
        header_values=_joined(part.header_values for part in parts),
        header_bounds=[*_joined(bounds), int(starts[-1])],
        identities=[],
        now=now,
    )
    ids = chain.from_iterable(part.ids for part in parts)
    identities = [
        decode.identity(rows.record(row)) if id_ is None else (id_, 0)
        for row, id_ in enumerate(ids)
    ]
    return replace(rows, identities=identities)


class _Part(NamedTuple):
    """The rows of one Arrow batch."""

    topics: Array
    partitions: Array
    offsets: Array
    timestamps: Array
    keys: Array
    values: Array
    header_names: Array
    header_values: Array
    header_bounds: Array
    """The index of each row's first header."""
    ids: list[str | None]


def _part(batch: pa.RecordBatch) -> _Part:
    columns = {name: batch.column(name) for name in COLUMNS}
    headers = columns["headers"]
    flat = headers.flatten()  # leaves out elements to which no row refers
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
    return _Part(
        topics=interned(columns["topic"]),
        partitions=columns["partition"].to_numpy(),
        offsets=columns["offset"].to_numpy(),
        timestamps=milliseconds(columns["timestamp"]),
        keys=_objects(columns["key"]),
        values=_objects(columns["value"]),
        header_names=interned(flat.field("key")),
        header_values=_objects(flat.field("value")),
        header_bounds=np.cumsum(lengths) - lengths,
        ids=_ids(flat, lengths),
    )


def _ids(flat: pa.StructArray, lengths: Array) -> list[str | None]:
    """
    Return the event id of each row, as `dedup.rules.policies.decode.identity` tells it.

    None means that the record itself must be examined: it has no id, or one that is not text, or
    it went through a retry topic.
    """
    parents = np.repeat(np.arange(len(lengths)), lengths)
    ids: list[str | None] = [None] * len(lengths)
    found = pc.equal(flat.field("key"), ID).to_numpy(zero_copy_only=False)
    values = flat.field("value").filter(pa.array(found)).to_pylist()
    for row, value in zip(reversed(parents[found].tolist()), reversed(values), strict=True):
        if value:
            ids[row] = _text(value)  # the first of several stays
    retried = pc.is_in(flat.field("key"), value_set=_DELIVERY).to_numpy(zero_copy_only=False)
    for row in parents[retried].tolist():
        ids[row] = None
    return ids


def _clock(batch: pa.RecordBatch) -> int:
    if NOW not in batch.schema.names:
        return 0
    return int(batch.column(NOW)[0].as_py())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _joined(columns: Iterable[Array]) -> list[Any]:
    return np.concatenate(list(columns)).tolist()  # type: ignore[no-any-return]  # a list it is


def _objects(column: pa.Array) -> Array:
    """Return a column as Python objects: bytes, strings, and None for nulls."""
    array: Array = column.to_numpy(zero_copy_only=False)
    return array


def interned(column: pa.Array) -> Array:
    """Return a column of few distinct strings, each of which becomes one object."""
    encoded = column.dictionary_encode()
    distinct = np.array(encoded.dictionary.to_pylist(), dtype=object)
    array: Array = distinct[encoded.indices.to_numpy()]
    return array


def milliseconds(column: pa.Array | pa.ChunkedArray) -> Array:
    """Return a column of times as milliseconds since 1970."""
    array: Array = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_numpy()
    return array
