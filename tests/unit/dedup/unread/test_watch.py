"""A partition that does not go on is said, tried again, and stepped over by a note alone."""

import logging
from typing import Any

import pytest

from dedup.rules.unread import SkipNote
from outbox.errors import DovecoteError
from tests.support.watched import BROKEN, ODD, PLACE, Watched


def test_an_error_of_a_record_blocks_its_partition_until_it_is_read_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    waits: list[float] = []
    for _ in range(8):
        watched.watch.failed(PLACE, 42, BROKEN)
        assert watched.found.blocked
        began, tries = watched.now, len(watched.moved)
        while len(watched.moved) == tries:
            watched.go_on(0.5)
        assert watched.moved[-1] == {PLACE: 42}
        assert not watched.found.blocked
        waits.append(watched.now - began)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    said = watched.watch.report()
    assert said.startswith("orders/0 does not go on at offset 42: Decompression failed; repair it")
    assert watched.metrics.stuck_partitions == {PLACE}
    assert 2 <= caplog.text.count("does not go on") <= 3
    watched.found.offsets.polled(42)
    watched.watch.observe({PLACE: 50})
    assert watched.watch.report() == ""
    assert watched.metrics.stuck_partitions == frozenset()


def test_a_note_that_covers_the_offset_is_followed_and_another_is_not(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    def note(first: int, until: int, **other: Any) -> SkipNote:
        given: dict[str, Any] = {
            "group": "g",
            "topic": "orders",
            "partition": 0,
            "topic_id": None,
        } | other
        return SkipNote(
            first=first, until=until, error="broken", by="ann", at="now", why="agreed", **given
        )

    watched.notes = [note(40, 42), note(43, 50), note(40, 50, partition=1)]
    watched.notes += [note(40, 50, topic_id="AAAAAAAAAAAAAAAAAAAAAC")]
    watched.watch.failed(PLACE, 40, BROKEN)
    watched.go_on(0.0)
    watched.go_on(0.5)
    assert watched.moved == []
    watched.notes.append(note(40, 50))
    for _ in range(8):
        watched.go_on(0.9)
    assert watched.moved[-1] == {PLACE: 50}
    assert not watched.found.blocked
    assert (watched.found.offsets.next, watched.found.offsets.position) == (50, 50)
    assert watched.found.changed
    assert watched.watch.report() == ""
    assert 'as "ann" decided at now ("agreed")' in caplog.text


@pytest.mark.parametrize("fails", [DovecoteError, TypeError])
def test_no_note_is_looked_for_while_everything_goes_on(
    watched: Watched, fails: type[Exception]
) -> None:
    watched.no_notes, watched.fails = "nobody may ask", fails
    watched.go_on(100)
    watched.watch.observe({PLACE: 42})
    assert watched.watch.report() == ""
    watched.watch.failed(PLACE, 42, BROKEN)
    watched.go_on(0.0)
    watched.go_on(0.1)
    assert "nobody may ask" in watched.watch.report()


def test_another_error_is_said_if_it_comes_again_and_again(watched: Watched) -> None:
    for number in range(3):
        assert ("odd" in watched.watch.report()) is (number >= 3)
        watched.watch.failed(PLACE, 42, ODD)
    assert "orders/0 does not go on at offset 42: odd" in watched.watch.report()
    assert not watched.found.blocked
    watched.go_on(100)
    assert watched.moved == []


def test_a_partition_that_stands_before_its_end_is_said_after_a_while(watched: Watched) -> None:
    for end, said in ((42, False), (43, True)):
        watched.watch.observe({PLACE: end})
        watched.now += 30
        watched.watch.observe({PLACE: end})
        assert watched.watch.report() == ""
        watched.now += 31
        watched.watch.observe({PLACE: end})
        watched.look()
        assert ("nothing has come for" in watched.watch.report()) is said
        watched.found.paused = True
        watched.watch.observe({PLACE: end})
        watched.found.paused = False
    watched.found.offsets.reached(43)
    watched.watch.observe({PLACE: 43})
    assert watched.watch.report() == ""


def test_an_open_transaction_is_told_from_what_cannot_be_read(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.stable = {PLACE: 42}
    said = watched.stand(57)
    assert said.startswith("orders/0 is held back at offset 42: a transaction of a producer has")
    assert "been open there for 66 s, and the log goes on to 57; what is held back comes" in said
    assert "transaction.timeout.ms" in said
    assert "step over it" not in said + caplog.text
    assert "orders/0 is held back" in caplog.text
    assert watched.metrics.held_back_partitions == {PLACE}
    assert watched.metrics.stuck_partitions == frozenset()
    # It ends, and what came in it cannot be read.
    watched.stable = {PLACE: 57}
    watched.look()
    watched.watch.observe({PLACE: 57})
    said = watched.watch.report()
    assert "can be read up to 57: the client cannot read it; repair it, or step over" in said
    assert watched.metrics.held_back_partitions == frozenset()
    assert watched.metrics.stuck_partitions == {PLACE}
    assert "orders/0 does not go on" in caplog.text
    # Otherwise it is read, and nothing is to be said of it.
    watched.found.offsets.reached(57)
    watched.watch.observe({PLACE: 57})
    assert watched.watch.report() == ""
    assert watched.metrics.stuck_partitions == frozenset()


def test_what_only_the_broker_knows_is_left_open_while_it_does_not_say(watched: Watched) -> None:
    said = watched.stand(57)
    assert "a transaction is open there, or the client cannot read it; the broker does" in said
    assert watched.metrics.stuck_partitions == {PLACE}
    watched.stable = {PLACE: 42}
    watched.look()
    assert watched.watch.report().startswith("orders/0 is held back")


def test_a_partition_that_was_idle_is_no_trouble_when_its_log_goes_on(watched: Watched) -> None:
    for _ in range(10):
        watched.watch.observe({PLACE: 42})
        watched.now += 60
    # A transaction has written a record, and is open for a moment.
    for seconds in (1, 58):
        watched.watch.observe({PLACE: 43})
        assert watched.watch.report() == ""
        watched.now += seconds
    watched.watch.observe({PLACE: 43})
    assert not watched.watch.says(PLACE)
    watched.now += 2
    watched.watch.observe({PLACE: 43})
    assert watched.watch.says(PLACE)


def test_errors_that_came_to_nothing_are_no_trouble_of_an_idle_partition(watched: Watched) -> None:
    for _ in range(3):
        watched.watch.failed(PLACE, 42, ODD)
    for end, said in ((43, True), (42, False)):
        watched.now += 61
        watched.watch.observe({PLACE: end})
        assert ("does not go on at offset 42: odd" in watched.watch.report()) is said
    assert watched.metrics.stuck_partitions == frozenset()


def test_what_was_revoked_or_begun_anew_is_forgotten(watched: Watched) -> None:
    watched.watch.failed(PLACE, 42, BROKEN)
    del watched.assigned[PLACE]
    watched.watch.failed(PLACE, 42, BROKEN)
    watched.go_on(100)
    watched.watch.observe({})
    assert watched.watch.report() == ""
    assert watched.moved == []


def test_an_answer_that_the_client_cannot_take_is_said_for_a_while(watched: Watched) -> None:
    watched.watch.broker_failed("Invalid response size: increase receive.message.max.bytes")
    assert "increase receive.message.max.bytes" in watched.watch.report()
    watched.now += 61
    assert watched.watch.report() == ""


def test_what_can_be_read_and_does_not_come_is_read_again_before_it_is_said(
    watched: Watched,
) -> None:
    watched.stable = {PLACE: 57}
    watched.watch.observe({PLACE: 57})
    watched.now += 61
    watched.watch.observe({PLACE: 57})
    watched.go_on(0)
    watched.go_on(0)
    assert watched.moved == [{PLACE: 42}]
    assert watched.watch.report() == ""
    # It helps, and nobody needs to know.
    watched.found.offsets.polled(42)
    watched.watch.observe({PLACE: 57})
    watched.look()
    assert watched.watch.report() == ""
    assert watched.moved == [{PLACE: 42}]


def test_what_does_not_come_after_that_either_is_said_and_tried_each_minute(
    watched: Watched,
) -> None:
    watched.stable = {PLACE: 57}
    watched.stand(57)
    watched.look()
    assert "the client cannot read it; repair it" in watched.watch.report()
    assert watched.moved == [{PLACE: 42}]
    for _ in range(12):
        watched.look()
    assert watched.moved == [{PLACE: 42}] * 2
