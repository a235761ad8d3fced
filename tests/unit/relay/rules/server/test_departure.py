"""
A relay leaves the log when nobody writes to it any more, at a place that says what is published.
"""

from relay.rules.places.progress import Cursor, LogPosition
from relay.rules.places.snapshot import Snapshot
from relay.rules.server.departure import Departure

NOBODY: frozenset[str] = frozenset()
NOW = Snapshot(10, 12, (10,))


def test_everyone_who_ran_at_the_first_look_is_waited_for_and_nobody_else() -> None:
    departure = Departure("7")
    departure.look(NOW, frozenset({"3/1", "4/1"}), NOBODY)
    departure.look(NOW, frozenset({"3/1", "5/9"}), NOBODY)
    assert not departure.is_free
    departure.look(NOW, frozenset({"5/9"}), NOBODY)
    assert departure.is_free


def test_a_transaction_that_was_prepared_meanwhile_is_waited_for() -> None:
    departure = Departure("7")
    departure.look(NOW, frozenset({"3/1"}), NOBODY)
    departure.look(NOW, NOBODY, frozenset({"99"}))
    assert not departure.is_free
    departure.look(NOW, NOBODY, frozenset({"99", "100"}))
    assert not departure.is_free
    departure.look(NOW, NOBODY, frozenset({"100"}))
    assert departure.is_free


def free() -> Departure:
    departure = Departure("7")
    departure.look(NOW, NOBODY, NOBODY)
    return departure


def test_the_log_is_read_to_the_end_that_the_mark_had() -> None:
    departure = free()
    assert departure.place(LogPosition(1 << 40), NOW) is None
    departure.mark(NOW, 500)
    assert departure.place(LogPosition(499), NOW) is None
    assert departure.place(LogPosition(600, 3), NOW) is None
    assert departure.place(LogPosition(500), NOW) == Cursor(NOW, log=500)


def test_what_came_from_the_log_beyond_the_mark_does_not_come_from_the_table_again() -> None:
    departure = free()
    departure.rows_of |= {8, 10, 14}
    departure.mark(NOW, 500)
    departure.rows_of |= {15}
    place = departure.place(LogPosition(520), Snapshot(12, 16, (12, 13)))
    assert place == Cursor(Snapshot(12, 16, (12, 13)), log=520)


def test_a_commit_that_nobody_sees_yet_is_waited_for() -> None:
    departure = free()
    departure.mark(NOW, 500)
    departure.rows_of.add(14)
    for now in (NOW, Snapshot(14, 16, (14,))):
        assert departure.place(LogPosition(520), now) is None
    assert departure.place(LogPosition(520), Snapshot(15, 16, (15,))) is not None


def test_transactions_that_a_look_has_seen_are_forgotten_until_the_mark() -> None:
    departure = free()
    departure.rows_of |= {9, 10, 12}
    departure.look(NOW, NOBODY, NOBODY)
    assert departure.rows_of == {10, 12}
    departure.mark(NOW, 500)
    departure.look(Snapshot(20, 20), NOBODY, NOBODY)
    assert departure.rows_of == {10, 12}
