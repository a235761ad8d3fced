"""Decide which leaves of an outbox to empty and which to write to next, from their contents."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PARENT = -1
"""The number of `events` itself, which has the rows written before there were leaves."""

TABLES = ("events", *(f"events_{number}" for number in range(4)))
"""The tables that take rows: the parent, and the leaves that `dovecote init outbox` makes."""

# A leaf that holds less keeps being written to: emptying it would gain nothing, and would leave a
# few dead rows in the catalog each time.
_WORTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """One table of the ring; its heap is empty or not, and writers are sent to it or not."""

    number: int
    heap_bytes: int
    total_bytes: int
    """Includes indexes and large values."""
    live_rows: int
    """By the server's statistics."""
    written: bool


def due(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return the leaves to try to empty: those that hold something and are not written to."""
    return [leaf for leaf in leaves if leaf.heap_bytes and not leaf.written]


def successor(leaves: Sequence[Leaf]) -> int | None:
    """
    Return the leaf to which writers should go now, None to leave them where they are.

    Only an empty leaf will do. While the others wait to be emptied (a backlog, a lock, retention),
    the leaf being written to grows, and nothing else happens. So the ring needs no schedule: it
    turns as fast as rows are dealt with.
    """
    ring = [leaf for leaf in leaves if leaf.number != PARENT]
    current = next((leaf for leaf in ring if leaf.written), None)
    if current is not None and current.heap_bytes < _WORTH:
        return None
    start = -1 if current is None else current.number
    empty = [leaf.number for leaf in ring if not leaf.heap_bytes and not leaf.written]
    # In turn, because the file system may still be removing the leaf that was just emptied.
    return min(empty, key=lambda number: (number <= start, number), default=None)
