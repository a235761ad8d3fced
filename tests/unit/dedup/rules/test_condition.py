"""A consumer is green only if it completed records, or could have, within the last minute."""

from typing import Any

import pytest

from dedup.rules.condition import ConsumerSeen, condition
from dedup.rules.recent import Recent
from dedup.rules.shared import unread
from dovecote.process.states import State


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        ({"role": "starting"}, State.STARTING, "not a member of the group yet"),
        ({"role": "starting", "away": 61.0}, State.FAILING, "not a member of the group yet"),
        ({"role": "starting", "said": "no right"}, State.FAILING, "yet: no right"),
        ({"role": "starting", "failure": "no Kafka broker answers"}, State.FAILING, "no Kafka"),
        ({"role": "stopped"}, State.DRAINING, "stopped"),
        ({"role": "stopped", "failure": "x"}, State.DRAINING, "stopped"),
        # Kafka, the group, the poll thread.
        ({"failure": "no Kafka broker answers"}, State.FAILING, "no Kafka broker answers"),
        ({"away": 61.0}, State.FAILING, "not a member of the group for 61 s"),
        ({"polled": 61.0}, State.STALLED, "not polled for 61 s"),
        ({"progressed": 61.0, "in_memory": 1}, State.STALLED, "none was completed for 61 s"),
        (
            {"progressed": 61.0, "lacking": "topic 'x' cannot be read"},
            State.STALLED,
            "none was completed for 61 s: topic 'x' cannot be read",
        ),
        ({"progressed": 61.0, "barred": "no right"}, State.STALLED, "for 61 s: no right"),
        (
            {"progressed": 6.0, "in_memory": 1, "barred": "no right"},
            State.FAILING,
            "no record is begun: no right",
        ),
        ({"progressed": 4.0, "in_memory": 1, "barred": "moves"}, State.WORKING, "at work"),
        ({"answered": None}, State.STARTING, "not answered yet"),
        ({"answered": 61.0}, State.UNKNOWN, "not heard for 61 s"),
        # Records.
        ({}, State.IDLE, "progressing"),
        ({"worked": 59.0}, State.WORKING, "progressing"),
        ({"worked": 61.0}, State.IDLE, "progressing"),
        ({"in_memory": 2, "handler": 9.0}, State.WORKING, "its handler is at work"),
        ({"in_memory": 2, "waits": True}, State.IDLE, "2 records are to wait"),
        ({"worked": 1.0, "handler": 61.0}, State.STALLED, "at work for 61 s"),
        ({"worked": 1.0, "lacking": "topic 'x' cannot be read"}, State.FAILING, "but topic 'x'"),
        ({"worked": 1.0, "held": "a/0 is held back"}, State.STALLED, "but a/0 is held back"),
        ({"worked": 1.0, "unmoved": "a/0 has stood"}, State.STALLED, "but a/0 has stood"),
        ({"inbox": "connection refused"}, State.FAILING, "the inbox: connection refused"),
        ({"inbox": "away", "progressed": 99.0}, State.FAILING, "the inbox: away"),
        (
            {"worked": 1.0, "lag_rows": 5, "lag_seconds": 301.0},
            State.BEHIND,
            "5 records are to be completed, the oldest for 301 s",
        ),
        ({"worked": 1.0, "lag_rows": 5, "lag_seconds": 299.0}, State.WORKING, "progressing"),
        # Failures: all of them, most of many, a few among others.
        ({"worked": 1.0, "failed": 3}, State.FAILING, "3 of the last minute's 3 attempts failed"),
        ({"worked": 1.0, "failed": 30, "handled": 20}, State.FAILING, "30 of the last minute's"),
        ({"worked": 1.0, "failed": 3, "handled": 1}, State.WORKING, "progressing"),
        ({"worked": 1.0, "failed": 30, "handled": 70}, State.WORKING, "progressing"),
        # No partition.
        ({"assigned": 0}, State.STANDBY, "have all partitions"),
        ({"assigned": 0, "shared": None}, State.STARTING, "no partition yet"),
        ({"assigned": 0, "shared": "no member has a/1"}, State.FAILING, "no member has a/1"),
        ({"assigned": 0, "answered": 61.0}, State.UNKNOWN, "not heard"),
        ({"assigned": 1, "shared": "no member has a/1"}, State.IDLE, "progressing"),
    ],
)
def test_a_consumer_says_how_it_is(seen: dict[str, Any], state: State, words: str) -> None:
    found, reason = condition(ConsumerSeen(**{"role": "consuming", **seen}))
    assert found is state
    assert words in reason


def test_a_group_whose_members_leave_a_partition_out_is_seen() -> None:
    four = [("a", n) for n in range(4)]
    assert not unread(four, [four[:2], four[2:], []])
    assert unread(four, [four[:3], []]).startswith("no member of its group has a/3:")
    assert unread(four, [[]]).startswith("no member of its group has a/0, a/1, a/2 and 1 more:")
    assert not unread(four, []), "brokers do not show the members of every group"


def test_outcomes_count_for_a_minute() -> None:
    recent = Recent()
    recent.add(0.0, 5, 1)
    recent.add(1.0, 0, 0)
    recent.add(30.0, 2, 3)
    assert recent.counts(59.0) == (7, 4)
    assert recent.counts(60.5) == (2, 3)
    assert recent.counts(100.0) == (0, 0)
