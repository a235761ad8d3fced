"""Compare the topic with the service's commits: each row once, in the order of its flight."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dovecote.demo.check.records import Record, Row


@dataclass(frozen=True, slots=True)
class Published:
    """Differences between the topic and the service's commits."""

    committed: int
    published: int
    """Records in the topic."""

    lost: int
    """Committed rows without a record."""

    duplicated: int
    """Records beyond one per row."""

    out_of_order: int
    """Records after a later one of their flight, or in another partition than the rest of it."""

    foreign: int
    """Records without a committed row: rolled back, altered or made up."""

    notes: tuple[str, ...] = ()
    """The differences, in words."""


def compare(rows: Iterable[Row], records: Iterable[Record]) -> Published:
    """Compare committed `rows` with `records`, which come in order within each partition."""
    known = {row.row: row for row in rows}
    seen: Counter[str] = Counter()
    order = _Order()
    published = foreign = 0
    notes: list[str] = []
    for record in records:
        published += 1
        row = known.get(str(record.fields.get("row")))
        if row is None or not _matches(record, row):
            foreign += 1
            notes.append(f"{record.place}: no committed row is like it")
            continue
        seen[row.row] += 1
        # A second record of a row is a duplicate, in any position.
        if seen[row.row] > 1:
            notes.append(f"{record.place}: row {row.row} again")
        elif not order.follows(record, row):
            notes.append(f"{record.place}: number {row.number} of {row.flight} is late")
    lost = [row for name, row in known.items() if name not in seen]
    notes += [f"row {row.row} ({row.type} of {row.flight}) is nowhere" for row in lost]
    return Published(
        committed=len(known),
        published=published,
        lost=len(lost),
        duplicated=seen.total() - len(seen),
        out_of_order=order.broken,
        foreign=foreign,
        notes=tuple(notes),
    )


class _Order:
    """Follows each flight through its partition."""

    def __init__(self) -> None:
        self.broken = 0
        self._last: dict[str, tuple[int, int]] = {}

    def follows(self, record: Record, row: Row) -> bool:
        """
        Return whether the row's number is the flight's highest yet, in the flight's partition.
        """
        partition, number = self._last.get(row.flight, (record.partition, 0))
        is_next = partition == record.partition and row.number > number
        self.broken += not is_next
        self._last[row.flight] = partition, max(number, row.number)
        return is_next


def _matches(record: Record, row: Row) -> bool:
    """Return whether `record` agrees with the service's row on the event."""
    return (
        record.key == row.flight
        and record.id == row.id
        and record.type == row.type
        and record.fields.get("flight") == row.flight
        and record.fields.get("number") == row.number
    )
