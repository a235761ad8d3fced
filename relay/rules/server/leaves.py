"""Which leaves of an outbox to empty, and which to write to next: decided from what they hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PARENT = -1
"""The number of `events` itself, where rows are that were written before there were leaves."""

TABLES = ("events", *(f"events_{number}" for number in range(4)))
"""Where rows are inserted: the parent, and the leaves that `dovecote init` has made."""

# A leaf that holds less is written to further: emptying it would gain nothing, and each time
# leaves a few dead rows in the catalog.
_WORTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """One table of the ring: its heap is empty or not, and writers are sent there or not."""

    number: int
    heap_bytes: int
    total_bytes: int
    """With indexes and large values."""
    live_rows: int
    """As the server's statistics count them."""
    written: bool


def due(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return the leaves to try to empty: those that hold something, and take no more."""
    return [leaf for leaf in leaves if leaf.heap_bytes and not leaf.written]


def successor(leaves: Sequence[Leaf]) -> int | None:
    """
    Return the leaf that writers should go to now, None to leave them where they are.

    Only an empty one will do. While the others wait to be emptied (a backlog, a lock, retention),
    the one that is written to grows; nothing else happens. So the ring needs no pace: it turns as
    fast as rows are done with.
    """
    ring = [leaf for leaf in leaves if leaf.number != PARENT]
    current = next((leaf for leaf in ring if leaf.written), None)
    if current is not None and current.heap_bytes < _WORTH:
        return None
    start = -1 if current is None else current.number
    empty = [leaf.number for leaf in ring if not leaf.heap_bytes and not leaf.written]
    # In turn: what was just emptied may still be on its way out of the file system.
    return min(empty, key=lambda number: (number <= start, number), default=None)
