"""A topic that multiplies its own records is detected."""

import pytest

from dedup.retries.storm import Amplification, Storm, following, hops
from dedup.rules.history import believed
from outbox.envelope import HOPS, ID, ROUND, SOURCE, Record
from outbox.event import Event


def record(number: int, round_: int = 0, topic: str = "orders") -> Record:
    headers = [(ID, f"e{number}".encode()), (ROUND, str(round_).encode())]
    return Record(topic, 0, 0, 0, b"k", b"{}", headers)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_copies_are_counted_and_rounds_are_not() -> None:
    counted = Amplification()
    for number in range(100):
        for round_ in range(3):
            counted.saw(record(number, round_))
            counted.saw(record(number, round_, "doubled"))
            counted.saw(record(number, round_, "doubled"))

    assert counted.report() == {"orders": 1.0, "doubled": 2.0}


def test_rounds_of_another_group_are_no_copies() -> None:
    counted = Amplification(limit=2.0, share=1)
    for number in range(100):
        counted.saw(record(number))
        for round_ in range(1, 4):
            seen = record(number, round_)
            counted.saw(seen._replace(headers=believed(seen.headers, retry=False)))

    assert counted.report() == {"orders": 1.0}


def test_a_sample_of_the_keys_says_as_much_and_is_the_same_each_time() -> None:
    counted, seen = Amplification(), Amplification(share=1)
    for _ in range(2):
        batch = [(f"k{number}".encode(), [record(number)]) for number in range(2000)]
        counted.sample(batch)
        seen.sample(batch)
        counted.sample([(None, [record(9000)])])

    assert counted.report() == seen.report() == {"orders": 2.0}


def test_a_storm_stops_the_consumer_with_what_to_do() -> None:
    counted = Amplification(limit=3.0)
    for _ in range(3):
        for number in range(100):
            counted.saw(record(number))

    with pytest.raises(Storm, match=r"topic 'orders' holds 3\.0 records for each event"):
        counted.saw(record(1))


def test_a_few_copies_are_no_storm() -> None:
    counted = Amplification(limit=3.0)
    for _ in range(40):
        counted.saw(record(1))

    assert counted.report() == {"orders": 40.0}


def test_a_window_ends_and_the_last_one_is_told_until_the_next_says_enough() -> None:
    clock = Clock()
    counted = Amplification(window=60, clock=clock)
    for number in range(100):
        counted.saw(record(number % 50))
    clock.now = 61.0
    counted.saw(record(1))
    assert counted.report() == {"orders": 2.0}

    for number in range(200):
        counted.saw(record(number))
    assert counted.report()["orders"] < 1.1


def test_records_without_an_id_are_nobodys_copies() -> None:
    counted = Amplification()
    counted.saw(Record("orders", 0, 0, 0, b"k", b"{}"))

    assert counted.report() == {}


def test_an_event_that_follows_another_has_one_hop_more() -> None:
    first = record(1, round_=2)
    second: Event[object] = Event(
        topic="billing", type="Billed", value={}, headers=(following(first),)
    )

    assert [hops(first), hops(second)] == [2, 3]
    assert following(second) == (HOPS, b"4")
    assert hops(first._replace(headers=[(HOPS, b"many")])) == 0


def test_events_of_two_sources_with_equal_ids_are_no_storm() -> None:
    counted = Amplification(limit=1.5)
    for number in range(100):
        for source in (b"/studio", b"/lms"):
            headers = [(ID, b"%d" % number), (SOURCE, source)]
            counted.saw(record(number, 0)._replace(headers=headers))
    assert counted.report() == {"orders": 1.0}
