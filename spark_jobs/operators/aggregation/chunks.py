"""Keep the events of a large window in chunks beside the state, which has only its newest ones."""

from typing import Any, Protocol

import msgpack

from outbox.envelope import Record
from spark_jobs.operators.aggregation.windows import Window, WindowState

TAIL = 16 * 2**10
"""The bytes of a window's events that stay in the state, which is written with each batch."""
_LARGEST = 2**20
"""About the most bytes of one chunk."""
_EACH = 64
"""About how many bytes a record or a header takes beside its contents."""


class Chunks(Protocol):
    """Chunks by the number of their window, and their own number from 0."""

    def read(self, window: int, number: int) -> bytes: ...

    def write(self, window: int, number: int, data: bytes) -> None: ...

    def drop(self, window: int, count: int) -> None:
        """Remove the chunks of a window, which has `count` of them."""


class InMemory:
    """Chunks in the memory of this process: nothing stores the state either."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], bytes] = {}

    def read(self, window: int, number: int) -> bytes:
        return self.held[window, number]

    def write(self, window: int, number: int, data: bytes) -> None:
        self.held[window, number] = data

    def drop(self, window: int, count: int) -> None:
        for number in range(count):
            del self.held[window, number]


def size_of(record: Record) -> int:
    """Return about how many bytes `record` takes in a state; headers count by their number."""
    _, _, _, _, key, value, headers = record
    found = _EACH + _EACH * len(headers)
    if key is not None:
        found += len(key)
    return found if value is None else found + len(value)


def put_aside(state: WindowState, window: Window, chunks: Chunks) -> None:
    """Move the events of a large window out of the state, which is written with each batch."""
    if window.tail <= TAIL:
        return
    if window.number == 0:
        state.windows += 1
        window.number = state.windows
    events, size = window.events, window.tail
    each = max(1, len(events) * _LARGEST // max(size, _LARGEST))
    packed: list[bytes] = [
        msgpack.packb([tuple(one) for one in events[start : start + each]])
        for start in range(0, len(events), each)
    ]
    window.events, window.tail, window.size = [], 0, window.size - size
    for data in packed:
        chunks.write(window.number, window.chunks, data)
        window.chunks += 1
        window.size += len(data)


def events_of(window: Window, chunks: Chunks) -> list[Record]:
    """Return all events of a window."""
    if not window.chunks:
        return window.events
    found: list[Record] = []
    for number in range(window.chunks):
        found += map(restored, msgpack.unpackb(chunks.read(window.number, number)))
    return found + window.events


def restored(found: list[Any]) -> Record:
    """Return the record of which MessagePack has made a list."""
    record = Record._make(found)
    return record._replace(headers=[(name, value) for name, value in record.headers])
