"""Wherever a batch is divided, its two parts are the whole, and the first has its place."""

import pytest

from relay.rules.batch import Batch, split
from relay.rules.places.lsn import log_number, log_place
from relay.rules.places.progress import Cursor, LogPosition, Place
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import Row, size_of
from tests.support import rows as made

ONE, TWO = Snapshot(10, 10), Snapshot(20, 20)


def row(position: int, size: int = 10) -> Row:
    return made.row(position, key=None, value=b"v" * size)


def whole(before: Place, after: Place, *rows: Row) -> Batch:
    size = sum(map(size_of, rows))
    return Batch(rows, after, size, keep=True, lsn="0/7", before=before)


def test_what_fits_is_not_divided() -> None:
    batch = whole(Cursor(ONE), Cursor(TWO), row(1), row(2))
    assert split(batch, rows=2, size=20) is None
    assert split(whole(Cursor(ONE), Cursor(TWO), row(1, 99)), rows=1, size=1) is None


def test_an_event_of_headers_alone_has_a_size_by_which_a_batch_is_divided() -> None:
    def headed(position: int) -> Row:
        bare = made.row(position, key=None)
        return (*bare[:5], None, *bare[6:8], "subject", None, ["a", "b"], [b"h" * 100, None])

    batch = whole(Cursor(ONE), Cursor(TWO), *map(headed, range(1, 6)))
    assert batch.size == 5 * (len("subject") + len("ab") + 100)
    parts = split(batch, rows=99, size=250)
    assert parts is not None
    assert [len(part.rows) for part in parts] == [2, 3]


@pytest.mark.parametrize(
    ("rows", "size", "first"), [(2, 99, 2), (9, 25, 2), (9, 1, 1), (3, 30, 3)]
)
def test_the_first_part_is_as_large_as_it_may_be(rows: int, size: int, first: int) -> None:
    batch = whole(Cursor(ONE), Cursor(TWO), *(row(n) for n in range(1, 6)))
    parts = split(batch, rows=rows, size=size)
    assert parts is not None
    one, rest = parts
    assert [*one.rows, *rest.rows] == list(batch.rows)
    assert (len(one.rows), one.size + rest.size) == (first, batch.size)
    assert one.cursor == rest.before == Cursor(ONE, TWO, first)
    assert (rest.cursor, rest.keep, one.keep) == (Cursor(TWO), True, False)
    assert one.lsn == rest.lsn == "0/7"


def test_on_the_way_through_a_window_its_end_stays() -> None:
    within = Cursor(ONE, TWO, 5, log=3)
    for after in (Cursor(ONE, TWO, 8, log=3), Cursor(TWO, log=3)):
        parts = split(whole(within, after, row(6), row(8)), rows=1, size=99)
        assert parts is not None
        assert parts[0].cursor == Cursor(ONE, TWO, 6, log=3)


def test_in_the_log_a_row_tells_of_its_place() -> None:
    rows = [row(log_number(0x1_0000_0000, 7)), row(log_number(0x2_0000_0000, 1))]
    before = LogPosition(0x1_0000_0000, 6, ONE, 0x1_8000_0000)
    parts = split(whole(before, LogPosition(0x2_0000_0010), *rows), rows=1, size=99)
    assert parts is not None
    assert parts[0].cursor == LogPosition(0x1_0000_0000, 7, ONE, 0x1_8000_0000)
    later = split(whole(before, LogPosition(0x3_0000_0010), rows[1], rows[1]), rows=1, size=99)
    assert later is not None
    assert later[0].cursor == LogPosition(0x2_0000_0000, 1)


def test_between_table_and_log_nothing_is_divided() -> None:
    for before, after in (
        (Cursor(), LogPosition(7)),
        (LogPosition(7), Cursor()),
        (None, Cursor()),
    ):
        batch = Batch([row(1), row(2)], after, 20, before=before)
        assert split(batch, rows=1, size=1) is None


def test_no_event_of_the_log_has_the_number_of_another_or_of_a_row() -> None:
    numbers = [log_number(lsn, index) for lsn in (1, 2, 1 << 63) for index in (1, 2, 1 << 61)]
    assert numbers == sorted(set(numbers))
    assert min(numbers) > (1 << 63)
    assert [log_place(number) for number in numbers[:2]] == [(1, 1), (1, 2)]
    assert log_place(77) == (0, 77)
