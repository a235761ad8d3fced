"""Reading ahead keeps the order, limits what is held, and raises errors in the waiting thread."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import psycopg
import pytest

from relay.errors import Outage
from relay.reader import Ahead, Reader
from relay.rules.batch import Batch, Capture
from relay.rules.places.progress import Cursor, Place
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import POSITION
from tests.support.rows import row
from tests.support.waiting import patient, until


def batch(*numbers: int) -> Batch:
    """Return a batch whose cursor has its last number."""
    last = max(numbers, default=0)
    cursor = Cursor(Snapshot(1, 1), None, last)
    return Batch(
        [row(number, key=None) for number in numbers], cursor, len(numbers), lsn=f"0/{last:X}"
    )


class FakeCapture:
    """Yields its batches once; then empty batches, or an error."""

    def __init__(self, *batches: Batch | BaseException) -> None:
        self.left = list(batches)
        self.asked: list[Place] = []
        self.interrupted = threading.Event()

    def batches(self, cursor: Place) -> Iterator[Batch]:
        self.asked.append(cursor)
        while self.left:
            following = self.left.pop(0)
            if isinstance(following, BaseException):
                raise following
            cursor = following.cursor
            yield following
        yield Batch([], cursor, 0, lsn=f"0/{cast(Cursor, cursor).position:X}")

    def wait(self, seconds: float) -> None:
        self.interrupted.wait(seconds)

    def stay(self) -> None:
        """Do nothing: there is no server."""

    def interrupt(self) -> None:
        self.interrupted.set()


class FlowingCapture(FakeCapture):
    """Has one more event each time that it is asked, until the server is lost."""

    lost = False

    def batches(self, cursor: Place) -> Iterator[Batch]:
        if self.lost:
            msg = "server closed"
            raise psycopg.OperationalError(msg)
        self.asked.append(cursor)
        yield batch(len(self.asked))


class BusyCapture(FakeCapture):
    """Has a hundred more events each time; finding them takes a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def batches(self, cursor: Place) -> Iterator[Batch]:
        self.asked.append(cursor)
        self.interrupted.wait(self.seconds)
        first = 100 * len(self.asked)
        yield batch(*range(first - 99, first + 1))


def reading(
    capture: Any,
    told: list[str] | None = None,
    *,
    poll_min: float = 0.001,
    poll_max: float = 0.01,
    most_rows: int = 4,
) -> Reader:
    return Reader(
        cast(Capture, capture),
        Cursor(),
        ahead=Ahead(most_rows=most_rows, most_bytes=1_000),
        poll_min=poll_min,
        poll_max=poll_max,
        slow=(told if told is not None else []).append,
    )


def taken(reader: Reader, count: int, *, rows: int = 100, size: int = 100) -> list[Batch]:
    """Return batches until they hold `count` rows."""
    found: list[Batch] = []
    stop = threading.Event()
    for each in reader.batches(lambda: (rows, size), stop):
        if each.rows:
            found.append(each)
        if sum(len(one.rows) for one in found) >= count:
            stop.set()
    return found


def numbers(batches: list[Batch]) -> list[int]:
    return [row[POSITION] for each in batches for row in each.rows]


def test_what_is_read_comes_in_order_with_the_cursor_of_its_end() -> None:
    capture = FakeCapture(*[batch(n, n + 1) for n in range(1, 40, 2)])
    with reading(capture) as reader:
        found = taken(reader, 40)
    assert numbers(found) == list(range(1, 41))
    for each in found:
        assert cast(Cursor, each.cursor).position == each.rows[-1][POSITION]
        assert each.size == len(each.rows)
        assert each.lsn == f"0/{each.rows[-1][POSITION]:X}"


def test_batches_are_joined_up_to_the_bound_and_never_beyond() -> None:
    capture = FakeCapture(*[batch(*range(n, n + 3)) for n in range(0, 60, 3)])
    with reading(capture) as reader:
        until(lambda: not reader._ahead.wait_for_room(0), within=5, what="batches read ahead")
        found = taken(reader, 60, rows=7)
    assert numbers(found) == list(range(60))
    assert max(len(each.rows) for each in found) == 6


def test_joined_batches_are_kept_when_the_last_of_them_is_that_has_to_be() -> None:
    def later(_: float) -> bool:
        return False

    capture = FakeCapture(replace(batch(1), is_kept=later), batch(2))
    with reading(capture) as reader:
        until(lambda: capture.left == [], within=5, what="batches read ahead")
        found = taken(reader, 2)
    assert [each.is_kept for each in found if each.rows][-1] in {later, None}
    assert later in {each.is_kept for each in found}


def test_the_next_poll_asks_from_where_the_last_one_ended() -> None:
    capture = FakeCapture(batch(1, 2), batch(3))
    with reading(capture) as reader:
        taken(reader, 3)
        until(lambda: len(capture.asked) >= 3, within=5, what="more polls")
    assert capture.asked[0] == Cursor()
    assert cast(Cursor, capture.asked[-1]).position == 3


def test_an_error_comes_to_who_waits_behind_what_was_read() -> None:
    capture = FakeCapture(batch(1), psycopg.errors.UndefinedTable("outbox.events is gone"))
    with reading(capture) as reader:
        until(lambda: reader._ahead._error, within=5, what="an error behind the batch")
        batches = reader.batches(lambda: (100, 100), threading.Event())
        assert numbers([next(batches)]) == [1]
        with pytest.raises(psycopg.errors.UndefinedTable):
            next(batches)


def test_a_lost_connection_is_an_outage_of_postgres() -> None:
    capture = FakeCapture(psycopg.OperationalError("server closed\nunexpectedly"))
    with reading(capture) as reader, pytest.raises(Outage, match=r"^Postgres: server closed$"):
        taken(reader, 1)


def test_it_ends_although_nobody_takes_what_was_read() -> None:
    capture = FakeCapture(*[batch(n) for n in range(100)])
    reader = reading(capture)
    with reader:
        until(lambda: not reader._ahead.wait_for_room(0), within=5, what="batches read ahead")
    assert not reader._thread.is_alive()
    assert capture.interrupted.is_set()
    assert len(capture.left) > 50, "it read further ahead than it may"


def test_nothing_is_read_that_there_is_no_room_for() -> None:
    capture = FakeCapture(*[batch(*range(n, n + 4)) for n in range(0, 40, 4)])
    with reading(capture) as reader:
        batches = reader.batches(lambda: (4, 1_000), threading.Event())
        for at_work in range(1, 10):
            next(batches)
            until(lambda: not reader._ahead.wait_for_room(0), within=5, what="the next is read")
            assert len(capture.left) == 10 - at_work - 1, "one is at work, and one waits for it"


class HangingCapture(FakeCapture):
    """A server that does not answer until it is interrupted."""

    def batches(self, cursor: Place) -> Iterator[Batch]:
        self.asked.append(cursor)
        self.interrupted.wait(20)
        yield batch()


def test_a_server_that_does_not_answer_is_named_and_interrupted() -> None:
    told: list[str] = []
    capture = HangingCapture()
    stop = threading.Event()
    with reading(capture, told) as reader:
        waiting = threading.Thread(target=lambda: list(reader.batches(lambda: (1, 1), stop)))
        waiting.start()
        until(lambda: told, within=10, what="a word about Postgres")
        stop.set()
        waiting.join(patient(5))
    assert told[0].startswith("Postgres: no answer for")
    assert not reader._thread.is_alive()


def test_what_has_come_since_is_more_of_a_batch() -> None:
    capture = FakeCapture(batch(1, 2))
    with reading(capture) as reader:
        batches = reader.batches(lambda: (100, 100), threading.Event())
        first = next(each for each in batches if each.rows)
        until(lambda: len(capture.asked) >= 2, within=5, what="a poll that finds nothing")
        while reader._ahead.take(0):
            """The loop ends when the next batch is a new one."""
        capture.left.append(batch(3, 4))
        until(lambda: (found := reader.more(1)) and found.rows, within=5, what="more of it")
        capture.left.append(batch(5))
        following = next(each for each in batches if each.rows)
    assert (numbers([first]), numbers([following])) == ([1, 2], [5])
    assert cast(Cursor, following.cursor).position == 5


def test_to_what_was_read_too_early_is_added_what_has_come_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.reader._SOON", 5.0)
    with reading(FlowingCapture(), poll_max=0.5) as reader:
        batches = reader.batches(lambda: (100, 100), threading.Event())
        first = next(batches)
        until(reader._ahead.is_old, within=5, what="one is read that nobody waits for")
        following = next(batches)
    found = numbers([first, following])
    assert found == list(range(1, len(found) + 1))
    assert len(following.rows) >= 2
    assert cast(Cursor, following.cursor).position == found[-1]


def test_an_error_meanwhile_comes_behind_what_was_read_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.reader._SOON", 5.0)
    capture = FlowingCapture()
    with reading(capture, poll_max=0.5) as reader:
        batches = reader.batches(lambda: (100, 100), threading.Event())
        found = list(next(batches).rows)
        until(reader._ahead.is_old, within=5, what="one is read that nobody waits for")
        capture.lost = True
        found += next(batches).rows
        assert [row[POSITION] for row in found] == list(range(1, len(found) + 1))
        assert len(found) == len(capture.asked)
        with pytest.raises(Outage, match="server closed"):
            next(batches)


def test_much_that_takes_long_to_find_is_read_before_anybody_waits() -> None:
    capture = BusyCapture(seconds=0.002)
    with reading(capture, poll_max=1, most_rows=2_000) as reader:
        until(lambda: len(capture.asked) >= 10, within=5, what="it asks on")
        found = taken(reader, 1_000, rows=2_000, size=2_000)
    assert numbers(found) == list(range(1, len(numbers(found)) + 1))


@pytest.mark.parametrize(
    ("capture", "more"), [(FlowingCapture(), 2), (BusyCapture(seconds=0), 101)]
)
def test_what_is_little_or_soon_found_is_read_when_somebody_waits(
    capture: FakeCapture, more: int
) -> None:
    with reading(capture, poll_min=0.2, poll_max=3, most_rows=1_000) as reader:
        until(reader._ahead.is_old, within=5, what="it rests")
        assert len(capture.asked) == 1
        taken(reader, more, rows=1_000, size=1_000)
    assert len(capture.asked) > 1


def test_there_is_no_more_than_there_is_room_for_and_the_rest_comes_next() -> None:
    capture = FakeCapture(batch(1, 2), batch(3, 4))
    with reading(capture) as reader:
        batches = reader.batches(lambda: (3, 100), threading.Event())
        until(lambda: not capture.left, within=5, what="both are read")
        assert numbers([next(batches)]) == [1, 2]
        assert reader.more(0.01) is None, "what is held for the next batch comes first"
        assert numbers([next(batches)]) == [3, 4]


def test_what_is_more_than_so_many_bytes_comes_next() -> None:
    capture = FakeCapture(batch(1, 2), batch(3, 4), batch(*range(5, 15)), batch(15))
    with reading(capture, most_rows=100) as reader:
        until(lambda: not capture.left, within=5, what="all are read")
        found = taken(reader, 15, size=5)
    assert [len(each.rows) for each in found] == [4, 5, 5, 1]
    assert numbers(found) == list(range(1, 16))


def test_the_bounds_are_those_of_the_moment() -> None:
    capture = FakeCapture(batch(*range(1, 31)))
    sizes = iter([1, 2, 4, 8, 16])
    with reading(capture, most_rows=100) as reader:
        found = reader.batches(lambda: (100, next(sizes)), threading.Event())
        assert [len(next(found).rows) for _ in range(5)] == [1, 2, 4, 8, 15]


@pytest.mark.parametrize(("rows", "size"), [(3, 100), (100, 3)])
def test_more_that_does_not_fit_waits_for_the_next_batch(rows: int, size: int) -> None:
    capture = FakeCapture(batch(1, 2))
    with reading(capture) as reader:
        batches = reader.batches(lambda: (rows, size), threading.Event())
        assert numbers([next(each for each in batches if each.rows)]) == [1, 2]
        capture.left.append(batch(3, 4))
        until(lambda: reader.more(0.01) is None and reader._held, within=5, what="more is read")
        assert numbers([next(each for each in batches if each.rows)]) == [3, 4]


def test_there_is_no_more_of_a_full_batch() -> None:
    capture = FakeCapture(batch(1, 2))
    with reading(capture) as reader:
        batches = reader.batches(lambda: (2, 100), threading.Event())
        assert numbers([next(each for each in batches if each.rows)]) == [1, 2]
        capture.left.append(batch(3))
        assert reader.more(0.01) is None
        assert numbers([next(each for each in batches if each.rows)]) == [3]


def test_an_error_is_not_more_of_a_batch() -> None:
    capture = FakeCapture(batch(1))
    with reading(capture) as reader:
        batches = reader.batches(lambda: (100, 100), threading.Event())
        assert numbers([next(each for each in batches if each.rows)]) == [1]
        capture.left.append(psycopg.OperationalError("server closed"))
        until(lambda: not capture.left, within=5, what="Postgres is asked again")
        assert all(not found.rows for found in iter(lambda: reader.more(0.01), None))
        with pytest.raises(Outage, match="server closed"):
            list(batches)
