"""Batches that are read ahead are bounded in rows and bytes, and come out in order."""

import threading

import pytest

from relay.reader import Ahead
from relay.rules.batch import Batch
from relay.rules.places.progress import LogPosition
from tests.support.rows import row
from tests.support.waiting import patient, until


def batch(rows: int, *, size: int = 1, lsn: int = 1, keep: bool = False) -> Batch:
    return Batch([row(n) for n in range(rows)], LogPosition(lsn), size, keep, f"0/{lsn}")


def test_small_batches_are_many_and_large_ones_few() -> None:
    ahead = Ahead(most_rows=10, most_bytes=100)
    for _ in range(10):
        assert ahead.wait_for_room(0)
        ahead.put(batch(1))
    assert not ahead.wait_for_room(0)
    ahead.clear()
    ahead.put(batch(50, size=500))
    assert not ahead.wait_for_room(0)


def test_bytes_are_bounded_too() -> None:
    ahead = Ahead(most_rows=10, most_bytes=100)
    ahead.put(batch(1, size=99))
    assert ahead.wait_for_room(0)
    ahead.put(batch(1, size=99))
    assert not ahead.wait_for_room(0)
    assert ahead.take(0) is not None
    assert ahead.wait_for_room(0)


def test_of_empty_batches_the_last_one_stays_and_what_is_to_be_kept_is_kept() -> None:
    ahead = Ahead(most_rows=10, most_bytes=100)
    for each in (batch(2), batch(0, lsn=2, keep=True), batch(0, size=0, lsn=3), batch(1, lsn=4)):
        ahead.put(each)
    assert ahead.take(0) == batch(2)
    assert ahead.take(0) == batch(0, lsn=3, size=0, keep=True)
    assert ahead.take(0) == batch(1, lsn=4)
    assert ahead.take(0) is None


def test_an_error_comes_behind_what_was_read() -> None:
    ahead = Ahead(most_rows=10, most_bytes=100)
    ahead.put(batch(1))
    ahead.fail(RuntimeError("gone"))
    assert ahead.take(0) == batch(1)
    with pytest.raises(RuntimeError, match="gone"):
        ahead.take(10)


def test_who_waits_for_room_or_for_a_batch_is_woken() -> None:
    ahead = Ahead(most_rows=1, most_bytes=100)
    ahead.put(batch(1))

    def put_when_there_is_room() -> None:
        if ahead.wait_for_room(30):
            ahead.put(batch(1, lsn=2))

    put = threading.Thread(target=put_when_there_is_room)
    put.start()
    assert ahead.take(0) == batch(1)
    assert ahead.take(30) == batch(1, lsn=2)
    put.join(patient(5))
    assert not put.is_alive()


def test_who_reads_can_wait_until_a_batch_is_awaited() -> None:
    ahead = Ahead(most_rows=10, most_bytes=100)
    ahead.wait_until_awaited(0.001)
    assert ahead.take(0) is None
    taken: list[Batch | None] = []
    taker = threading.Thread(target=lambda: taken.append(ahead.take(30)))
    taker.start()
    ahead.wait_until_awaited(30)
    assert taken == []
    ahead.put(batch(3))
    taker.join(patient(30))
    assert taken == [batch(3)]


def test_who_reads_waits_no_longer_at_the_end() -> None:
    ahead = Ahead(most_rows=10, most_bytes=100)
    ahead.clear()
    reader = threading.Thread(target=ahead.wait_until_awaited, args=(3_600,), daemon=True)
    reader.start()
    reader.join(patient(30))
    assert not reader.is_alive()


def test_what_was_read_before_it_was_awaited_is_old_once_the_reader_rests() -> None:
    ahead = Ahead(most_rows=10, most_bytes=100)
    ahead.put(batch(1))
    assert not ahead.is_old(), "more may follow at once"
    reader = threading.Thread(target=ahead.wait_until_awaited, args=(30,))
    reader.start()
    until(ahead.is_old, within=30, what="the reader rests")
    assert ahead.take(0) == batch(1)
    assert not ahead.is_old(), "nothing is here"
    until(
        lambda: ahead.take(0.01) is None and not reader.is_alive(), within=30, what="it is awaited"
    )
    ahead.put(batch(2))
    assert not ahead.is_old(), "it was read because it was awaited"
