"""The keys that parked events hold are known in bounded memory."""

import tracemalloc
from collections.abc import Sequence

from relay.rules.held import HeldKeys, Lane, lane_of
from relay.rules.row import Row
from tests.support.rows import row


class Database:
    """Knows all held lanes, and counts questions."""

    def __init__(self, *keys: tuple[str, bytes]) -> None:
        self.lanes, self.asked = {lane_of(key) for key in keys}, list[Lane]()

    def ask(self, lanes: Sequence[Lane]) -> list[int]:
        self.asked += lanes
        return [place for place, lane in enumerate(lanes) if lane in self.lanes]

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.lanes})


ROWS: list[Row] = [
    row(1, topic="orders", key=b"a"),
    row(2, topic="orders", key=b"b"),
    row(3, topic="bills", key=b"a"),
    row(4, topic="orders", key=None),
]


def test_few_keys_are_remembered_and_nobody_is_asked() -> None:
    database = Database(("orders", b"a"))
    held = HeldKeys()
    held.begin(database.lanes, database.topics)
    assert held.among(ROWS, database.ask) == {("orders", b"a")}
    held.add([("bills", b"a"), ("orders", None)])
    assert held.among(ROWS, database.ask) == {("orders", b"a"), ("bills", b"a")}
    held.discard(("orders", b"a"))
    held.discard(("orders", b"never"))
    held.discard(("orders", None))
    assert held.among(ROWS, database.ask) == {("bills", b"a")}
    assert database.asked == []


def test_of_too_many_keys_the_database_is_asked_and_only_about_their_topics() -> None:
    database = Database(("orders", b"a"), ("orders", b"x"), ("orders", b"y"))
    held = HeldKeys(most=2)
    held.begin(iter(database.lanes), database.topics)
    assert held.is_over
    assert held.among(ROWS, database.ask) == {("orders", b"a")}
    assert sorted(database.asked) == sorted(map(lane_of, [("orders", b"a"), ("orders", b"b")]))
    # The database knows the keys that are parked from then on, too.
    database.lanes.add(lane_of(("bills", b"a")))
    held.add([("bills", b"a")])
    assert held.among(ROWS, database.ask) == {("orders", b"a"), ("bills", b"a")}
    held.discard(("orders", b"a"))
    database.lanes = {lane_of(("bills", b"a"))}
    assert held.among(ROWS, database.ask) == {("bills", b"a")}
    held.begin(database.lanes, database.topics)
    assert not held.is_over


def test_keys_that_become_too_many_while_the_relay_works_are_asked_for() -> None:
    database = Database()
    held = HeldKeys(most=1)
    held.begin([], database.topics)
    for key in (b"a", b"b"):
        database.lanes.add(lane_of(("orders", key)))
        held.add([("orders", key)])
    assert held.is_over
    assert held.among(ROWS, database.ask) == {("orders", b"a"), ("orders", b"b")}


def test_any_number_of_keys_and_topics_takes_bounded_memory() -> None:
    held, none = HeldKeys(most=1_000), Database()
    tracemalloc.start()
    for n in range(50_000):
        held.add([(f"topic-{n}", b"k" * 1_000)])
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1_000_000
    # All topics may have one by now.
    held.among(ROWS, none.ask)
    assert len(none.asked) == 3
