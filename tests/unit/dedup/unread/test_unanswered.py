"""A partition whose requests for records are not answered is said, with what a new client gets."""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from dedup.rules.lanes.assigned import assigned
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.unread import Place
from tests.support.watched import BROKEN, PLACE, Watched


def test_a_partition_of_which_nothing_was_ever_answered_is_asked_for_by_a_new_client(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.refused = "you may not"
    said = "orders/0 does not go on at offset 42: no request for its records is answered for 61 s"
    assert watched.stand(-1) == f"{said}: you may not"
    assert caplog.messages == [f"{said}: you may not (since 5 s)"]
    assert watched.watch.says(PLACE)
    assert (watched.asked, watched.moved) == ([Place(*PLACE, 42)], [])
    for _ in range(11):
        watched.look()
    assert len(watched.asked) == 1
    watched.look()
    assert len(watched.asked) == 2
    # Its log ends there.
    watched.watch.observe({PLACE: 42})
    assert watched.watch.report() == ""
    assert watched.metrics.stuck_partitions == frozenset()


def test_a_partition_that_a_new_client_can_read_is_read_again_and_said_if_that_does_not_help(
    watched: Watched,
) -> None:
    assert watched.stand(-1) == ""
    assert watched.moved == [{PLACE: 42}]
    watched.go_on(60)
    watched.watch.observe({PLACE: -1})
    watched.look()
    said = watched.watch.report()
    assert "is answered for 126 s: a new client is answered, so restart this one" in said
    assert watched.moved == [{PLACE: 42}] * 2


def test_a_partition_that_is_looked_after_elsewhere_is_not_watched(watched: Watched) -> None:
    for _ in range(3):
        watched.watch.observe({})
        watched.go_on(61)
    assert (watched.watch.report(), watched.asked) == ("", [])


def test_a_partition_without_an_offset_that_is_never_answered_is_said_and_not_moved(
    watched: Watched,
) -> None:
    watched.found.offsets = Offsets(None)
    assert watched.stand(-1) == ""
    watched.go_on(60)
    watched.watch.observe({PLACE: -1})
    watched.look()
    said = watched.watch.report()
    assert "a new client is answered, so this one may not know where to begin" in said
    assert (watched.asked, watched.moved) == ([Place(*PLACE, 0)] * 2, [])


def test_a_partition_that_is_answered_again_is_as_new(watched: Watched) -> None:
    watched.refused = "you may not"
    assert "you may not" in watched.stand(-1)
    watched.watch.observe({PLACE: 100})
    assert watched.watch.report() == ""
    watched.now += 59
    watched.watch.observe({PLACE: 100})
    assert watched.watch.report() == ""


def test_a_partition_is_not_held_back_while_no_request_is_answered(watched: Watched) -> None:
    watched.stable = {PLACE: 42}
    assert "is held back" in watched.stand(57)
    watched.refused = "not the leader"
    said = watched.stand(-1)
    assert said.endswith("is answered for 61 s: not the leader")
    assert watched.metrics.held_back_partitions == frozenset()


def test_an_error_of_long_ago_hides_no_partition_that_is_not_answered(watched: Watched) -> None:
    watched.refused = "you may not"
    watched.watch.failed(PLACE, 42, KafkaError(KafkaError.UNKNOWN))
    assert watched.stand(-1).endswith("you may not")


def test_what_was_found_counts_though_the_notes_cannot_be_read(watched: Watched) -> None:
    other = ("orders", 1)
    lanes: Lanes[Any] = Lanes("apart")
    watched.assigned[other] = assigned(lanes.begin(*other), Offsets(7), max_skew=10)
    watched.refused, watched.no_notes = "you may not", "no right"
    watched.watch.failed(PLACE, 42, BROKEN)
    for _ in range(2):
        watched.watch.observe({other: -1})
        watched.now += 61
    watched.watch.observe({other: -1})
    watched.look()
    watched.look()
    said = watched.watch.report()
    assert "orders/1 does not go on at offset 7" in said
    assert "you may not" in said
    assert "what may be stepped over is not known: no right" in said
