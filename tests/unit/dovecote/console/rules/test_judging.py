"""A part is green only if what it names worked in the last minute."""

from dataclasses import replace

import pytest

from dovecote.console.rules.facts import (
    GroupFacts,
    Heard,
    OutboxFacts,
    OutboxLag,
    ProcessFacts,
    ShardFacts,
    SubscriptionFacts,
    TopicFacts,
)
from dovecote.console.rules.judging import (
    GREEN,
    Judged,
    Motion,
    outbox,
    process,
    reader,
    spark,
    subscription,
    together,
    topic,
    unheard,
)

NOW = 1_000.0
MOVES = Motion(5.0, None, 1.0)
WELL = ProcessFacts("working", "active", "progressing")
SUB = SubscriptionFacts(
    id="hook",
    topics=["orders"],
    status="active",
    reason="",
    state=None,
    processes=1,
    trouble="",
    circuit="closed",
    lag=0,
    delivered=5,
    dead=0,
    url="http://hooks.example",
    last_minute={},
)


def test_a_source_that_fails_is_failing_at_once_and_unknown_after_a_minute() -> None:
    lately = Heard(1, at=NOW - 5, error="refused", failing=NOW - 3)
    assert unheard(lately, "kafka", "Kafka does not answer", NOW) == Judged(
        "failing", "Kafka does not answer: refused", cause="kafka"
    )
    long_ago = replace(lately, at=NOW - 61)
    found = unheard(long_ago, "kafka", "Kafka does not answer", NOW)
    assert found is not None
    assert found.state == "unknown"
    assert unheard(Heard(1, at=NOW - 5), "kafka", "", NOW) is None
    late = unheard(Heard(1, at=NOW - 61), "kafka", "", NOW)
    assert late is not None
    assert late.state == "unknown"


def test_a_relay_whose_readyz_is_not_heard_is_not_green() -> None:
    assert process(Heard(WELL, NOW - 5), "http://r", NOW).state == "working"
    assert process(Heard(WELL, NOW - 61), "http://r", NOW).state == "unknown"
    gone = process(Heard(WELL, NOW - 5, "Connection refused", NOW - 2), "http://r", NOW)
    assert gone.state == "failing"
    assert "http://r does not answer: Connection refused" in gone.reason
    assert process(Heard(), "http://r", NOW).state not in GREEN


def test_a_topic_that_should_exist_and_does_not_is_failing() -> None:
    found = topic("orders", None, Motion(), ["consumer/shipping"])
    assert found.state == "failing"
    assert "does not exist, and consumer/shipping needs it" in found.reason
    assert "dovecote topic create orders" in found.todo
    there = TopicFacts(3, 0, 10, 10)
    assert topic("orders", there, Motion(), []).state == "idle"
    assert topic("orders", there, MOVES, []).state == "working"
    assert topic("orders", replace(there, leaderless=1), MOVES, []).state == "failing"


@pytest.mark.parametrize(
    ("group", "state"),
    [
        (GroupFacts(0, lag={"orders": 3}), "failing"),
        (GroupFacts(0), "unknown"),
        (None, "unknown"),
        (GroupFacts(1), "idle"),
        (GroupFacts(1, lag={"orders": 3}), "starting"),
        (GroupFacts(0, rebalancing=True), "starting"),
    ],
)
def test_a_group_without_members_is_failing_with_lag_and_unknown_without(
    group: GroupFacts | None, state: str
) -> None:
    assert reader("consumer", group, Motion(), [], []).state == state


def test_a_consumer_is_as_its_processes_its_topics_and_its_offsets_say() -> None:
    group = GroupFacts(2, lag={"orders": 3})
    well, dead = Judged("working"), Judged("failing", "gone")
    assert reader("consumer", group, MOVES, [well, well], []).state == "working"
    assert reader("consumer", group, MOVES, [well, dead], []).state == "failing"
    assert reader("consumer", group, MOVES, [well], ["orders"]).state == "failing"
    assert reader("consumer", group, Motion(still=61.0), [well], []).state == "stalled"
    assert reader("consumer", group, MOVES, [], []).state == "working"


def test_processes_that_share_the_work_are_as_the_worst_of_them() -> None:
    assert together("relay", [Judged("standby"), Judged("working")]).state == "working"
    assert together("relay", [Judged("standby"), Judged("idle")]).state in GREEN
    found = together("relay", [Judged("working"), Judged("failing", "gone")])
    assert found == Judged("failing", "1 of 2 relay processes: gone")


def test_an_outbox_is_red_without_a_relay_and_amber_with_parked_events() -> None:
    active, none = ShardFacts("shop", True, 1, 0), ShardFacts("shop", False, 0, 0)  # noqa: FBT003
    nothing, waits = OutboxLag(0, 0.0), OutboxLag(3, 90.0)
    idle = [Judged("idle")]

    def state(shard: ShardFacts, lag: OutboxLag | None, motion: Motion = Motion()) -> str:  # noqa: B008
        return outbox(OutboxFacts([shard]), lag, motion, idle, 60.0).state

    assert state(active, nothing) == "idle"
    assert state(active, nothing, MOVES) == "working"
    assert state(active, waits, MOVES) == "behind"
    assert state(active, waits, Motion(still=61.0)) == "stalled"
    assert state(active, None) == "unknown"
    assert state(none, waits) == "stalled"
    assert state(none, nothing) == "failing"
    assert state(replace(active, parked=1), nothing) == "behind"
    found = outbox(OutboxFacts([active]), nothing, MOVES, [Judged("failing", "x")], 60.0)
    assert found.state == "failing"


@pytest.mark.parametrize(
    ("changed", "state", "reason"),
    [
        ({"last_minute": {"401": 100}}, "failing", "answers 401 to all of the last 100 requests"),
        ({"last_minute": {"401": 1}}, "failing", "answers 401 to the last request"),
        ({"last_minute": {"204": 5, "500": 5}}, "failing", "answers 500 to 5 of 10"),
        ({"last_minute": {"no answer": 3}}, "failing", "gives no answer"),
        ({"last_minute": {"204": 9, "500": 1}}, "working", ""),
        ({"status": "paused", "reason": "by ops"}, "paused", "by ops"),
        ({"status": "disabled", "reason": "410"}, "failing", "disabled: 410"),
        ({"processes": 0, "lag": 3}, "stalled", "no process delivers it"),
        ({"processes": 0}, "unknown", "no process reports on it"),
        ({"trouble": "no such host"}, "failing", "no such host"),
        ({"circuit": "open"}, "failing", "nothing but probes"),
        ({"state": "behind", "trouble": "3 wait"}, "behind", "3 wait"),
        ({}, "idle", ""),
    ],
)
def test_a_subscription_is_as_its_last_requests_were(
    changed: dict[str, object], state: str, reason: str
) -> None:
    found = subscription(replace(SUB, **changed), Motion())  # type: ignore[arg-type]  # its fields
    assert found.state == state
    assert reason in found.reason


def test_a_job_that_cannot_be_asked_is_not_green() -> None:
    assert spark([], []).state == "unknown"
    assert spark([Judged("working")], []).state == "working"
    assert spark([Judged("working")], ["orders"]).state == "failing"
