"""
Store a large state as a base and the changes since, so that a step writes what it has changed.

A small state is one value. A large one has a head as its value, which lists the parts: a base,
which is the state as it was once, and a delta for each step since. A new base replaces all parts
when the deltas together would be larger than the base, or are many. So a step writes its delta,
and in the long run as much again or a 256th of the base, whichever is more.

Each part has a stamp, a digest of the stamp before it and of its own bytes. Where two stamps are
the same, the states are.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol, Self, TypeAlias

import msgpack

from spark_jobs.errors import StateDamaged
from spark_jobs.operators.changes import Delta
from spark_jobs.operators.encoding import IN_PARTS

SMALL = 64 * 2**10
"""A state of fewer bytes is one value: a part takes a call of Spark's, as long as some 64 KB."""
PARTS_NAME, PART_NUMBER, PART = "parts", "number long", "part binary"
"""The name of the map of parts, for Spark, and the schemas of its keys and values."""
_MOST = 256
"""Deltas of one base. Each is listed in the head, which every step writes."""
_STAMP = 16
_KEPT = 64
"""A worker keeps the states that it stepped last."""
_HEAD = msgpack.packb([IN_PARTS, "", []])[:2]
State: TypeAlias = Any
"""The operator's own."""


class StateCodec(Protocol):
    """The bytes of a state, and of its changes."""

    @property
    def name(self) -> str: ...
    def encode(self, state: State) -> bytes: ...
    def decode(self, data: bytes) -> State: ...

    def delta(self, state: State) -> Delta | None:
        """Return what has changed since the state was settled; None: store the whole."""

    def apply(self, state: State, data: bytes) -> None:
        """Make the changes of a delta."""

    def settle(self, state: State, *, is_all: bool) -> None:
        """Note that the state is stored; `is_all`: the next step stores the whole anyway."""

    def count(self, state: State) -> int:
        """Return how many keys there are."""


class PartsStore(Protocol):
    """The parts of the bucket that is being stepped, as Spark's map has them."""

    def getValue(self, key: tuple[int]) -> Any: ...  # noqa: ANN401, N802  # Spark's name
    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None: ...  # noqa: N802
    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Head:
    """The parts of a large state."""

    name: str
    """The operator's."""
    sizes: tuple[int, ...]
    """In bytes, the base first."""
    stamps: tuple[bytes, ...]
    size: int
    """About how many bytes the whole state would take: a delta replaces keys of average size."""
    keys: int

    @classmethod
    def of(cls, name: str, base: bytes, keys: int) -> Self:
        """Return the head of a state that is whole in `base`."""
        return cls(name, (len(base),), (_stamp(b"", base),), len(base), keys)

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """
        Return the head in `data`; None: it is a small state.

        Raises:
            StateDamaged: it is neither.
        """
        if data[:2] != _HEAD:
            return None
        try:
            _, name, (sizes, stamps, size, keys) = msgpack.unpackb(data)
            found = [stamps[at : at + _STAMP] for at in range(0, len(stamps), _STAMP)]
            return cls(name, tuple(sizes), tuple(found), size, keys)
        except (ValueError, TypeError) as error:
            msg = f"the list of the state's parts cannot be read: {error}. {_ADVICE}"
            raise StateDamaged(msg) from error

    def encode(self) -> bytes:
        stored = self.sizes, b"".join(self.stamps), self.size, self.keys
        data: bytes = msgpack.packb([IN_PARTS, self.name, stored])
        return data

    def followed(self, delta: Delta, keys: int) -> Self | None:
        """Return the head with another delta; None: a new base is better."""
        base, *deltas = self.sizes
        if len(deltas) >= _MOST or sum(deltas) + len(delta.data) > base:
            return None
        replaced = max(0, delta.changed + self.keys - keys)
        return replace(
            self,
            sizes=(*self.sizes, len(delta.data)),
            stamps=(*self.stamps, _stamp(self.stamps[-1], delta.data)),
            size=max(0, self.size + len(delta.data) - replaced * self.size // max(1, self.keys)),
            keys=keys,
        )


@dataclass(frozen=True, slots=True)
class Writing:
    """The bytes to write of a state."""

    value: bytes
    size: int
    """How many bytes the whole state takes, or about."""
    part: bytes | None = None
    number: int = 0
    clears: bool = False
    """The parts that there are go first."""


class Kept:
    """The states that this worker stepped last, each with the value that Spark has of it."""

    def __init__(self) -> None:
        self._held: OrderedDict[Hashable, tuple[bytes, State]] = OrderedDict()

    def take(self, bucket: Hashable) -> tuple[bytes, State] | None:
        """Return a state, which is kept no longer: a step that fails leaves it half changed."""
        return self._held.pop(bucket, None)

    def keep(self, bucket: Hashable, value: bytes, state: State) -> None:
        self._held[bucket] = value, state
        while len(self._held) > _KEPT:
            self._held.popitem(last=False)


class Stored:
    """The states of a task's buckets, in Spark's store and as far as the worker has kept them."""

    def __init__(
        self, codec: StateCodec, parts: PartsStore | None, kept: Kept, owner: Hashable
    ) -> None:
        """`parts`: None if states are always whole; `owner`: what the states depend on."""
        self._codec, self._parts, self._kept, self._owner = codec, parts, kept, owner

    def read(self, bucket: int, value: bytes) -> State:
        """
        Return the state of a bucket, of which Spark has this value.

        Raises:
            StateDamaged: a part of it is missing, or is another.
            BadState: it is no state of this operator.
        """
        kept = self._kept.take((self._owner, bucket))
        if kept is not None and kept[0] == value:
            return kept[1]
        head = self._head(value)
        if head is None:
            state = self._codec.decode(value)
            self._codec.settle(state, is_all=True)
            return state
        state, done = None, 0
        if kept is not None and (before := self._head(kept[0])) is not None:
            # Another worker has stepped the bucket since.
            last = before.stamps[-1]
            if last in head.stamps:
                state, done = kept[1], head.stamps.index(last) + 1
        for data in self._parts_of(bucket, head, done):
            state = restored(self._codec, state, data)
        self._codec.settle(state, is_all=False)
        return state

    def whole(self, bucket: int, value: bytes) -> bytes:
        """Return all of a state as one value, as if it were small; raises what `read` does."""
        head = self._head(value)
        if head is None:
            return value
        state = None
        for data in self._parts_of(bucket, head, 0):
            state = restored(self._codec, state, data)
        return self._codec.encode(state)

    def writing(self, state: State, before: bytes | None, most: int) -> Writing:
        """
        Return what is to be written of `state`, of which Spark has the value `before`.

        A size of more than `most` bytes is measured, and not estimated.
        """
        head = None if before is None else self._head(before)
        if head is not None and (delta := self._codec.delta(state)) is not None:
            after = head.followed(delta, self._codec.count(state))
            if after is not None and after.size <= most:
                return Writing(after.encode(), after.size, delta.data, len(head.sizes))
        data = self._codec.encode(state)
        if self._parts is None or len(data) < SMALL:
            return Writing(data, len(data), clears=head is not None)
        new = Head.of(self._codec.name, data, self._codec.count(state))
        # A base that is alone is overwritten.
        clears = head is not None and len(head.sizes) > 1
        return Writing(new.encode(), len(data), data, clears=clears)

    def write(self, bucket: int, state: State, writing: Writing) -> None:
        """Write the parts of a state, and keep it; the caller writes its value."""
        if self._parts is not None:
            if writing.clears:
                self._parts.clear()
            if writing.part is not None:
                self._parts.updateValue((writing.number,), (writing.part,))
        self._codec.settle(state, is_all=writing.part is None)
        self._kept.keep((self._owner, bucket), writing.value, state)

    def _head(self, value: bytes) -> Head | None:
        return None if self._parts is None else Head.decode(value)

    def _parts_of(self, bucket: int, head: Head, first: int) -> Iterator[bytes]:
        parts = self._parts
        for number in range(first, len(head.sizes)):
            found = None if parts is None else parts.getValue((number,))
            yield checked(bucket, head, number, None if found is None else bytes(found[0]))


def checked(bucket: int, head: Head, number: int, data: bytes | None) -> bytes:
    """
    Return the bytes of a part.

    Raises:
        StateDamaged: it is missing, or is another.
    """
    before = head.stamps[number - 1] if number else b""
    if data is not None and _stamp(before, data) == head.stamps[number]:
        return data
    wrong = "is missing" if data is None else "is not the one that was written"
    place = f"part {number + 1} of {len(head.sizes)} of the state of bucket {bucket}"
    msg = f"{place} {wrong}: {_ADVICE}"
    raise StateDamaged(msg)


def restored(codec: StateCodec, state: State | None, part: bytes) -> State:
    """Return a state with its next part; None: with the first."""
    if state is None:
        return codec.decode(part)
    codec.apply(state, part)
    return state


_ADVICE = (
    "the checkpoint is damaged. Go on from a copy of it, or begin with a new checkpoint (and "
    "`--adopt`, once)"
)


def _stamp(before: bytes, data: bytes) -> bytes:
    digest = blake2b(before, digest_size=_STAMP)
    digest.update(data)
    return digest.digest()
