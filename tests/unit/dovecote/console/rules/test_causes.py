"""One cause is one trouble, at the part where an operator acts; two causes stay two."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from dovecote.console.rules.facts import (
    ClusterFacts,
    GroupFacts,
    Heard,
    OutboxFacts,
    OutboxLag,
    ProcessFacts,
    Samples,
    ShardFacts,
    SubscriptionFacts,
    TopicFacts,
)
from dovecote.console.rules.motion import Memory
from dovecote.console.rules.picture import Drawing
from dovecote.console.rules.plan import OutboxPlan, Plan, PushPlan, ReaderPlan
from dovecote.console.rules.telling import troubles

NOW = 1_000_000.0
ONE, TWO = "http://relay-1", "http://relay-2"
WELL = ProcessFacts("idle", "active", "everything is published")
STANDBY = ProcessFacts("standby", "standby", "waiting")
PARKED = ProcessFacts("behind", "active", "1 event is parked: see `dovecote relay parked list`")
JUST_PARKED = ProcessFacts(
    "failing", "active", "it parked events within the last minute: too large; 1 event is parked"
)
SHARD = ShardFacts("shop", active=True, standbys=1, parked=0)
PLAN = Plan(
    [OutboxPlan("shop", "kafka", [ONE, TWO], "progress", 1)],
    [
        ReaderPlan("consumer", "shipping", "kafka", [], "shipping", ["orders", "gone"], {}),
        ReaderPlan("spark", "days", "kafka", ["http://spark"], "days", ["orders"], {}),
    ],
    [PushPlan("main", "kafka", [], has_api=True)],
)
HOOK = SubscriptionFacts(
    id="hook",
    topics=["gone"],
    status="active",
    reason="",
    state="idle",
    processes=1,
    trouble="",
    circuit="closed",
    lag=0,
    delivered=1,
    dead=0,
    url="http://hooks.example",
    last_minute={},
)
DEAD = Heard(WELL, NOW - 5, "Connection refused", NOW - 3)


def told(
    one: ProcessFacts | Heard[ProcessFacts] = WELL,
    two: ProcessFacts | Heard[ProcessFacts] = STANDBY,
    *,
    shard: ShardFacts = SHARD,
    lag: OutboxLag | None = None,
    missing: Sequence[str] = (),
    hook: SubscriptionFacts = HOOK,
) -> Mapping[str, str]:
    """Return the title of each trouble by its part."""
    names = {"orders", "gone", "progress"} - set(missing)
    topics = {name: TopicFacts(1, 0, 10, 10) for name in names}
    cluster = ClusterFacts(topics, {"shipping": GroupFacts(1)})
    spark = ProcessFacts("idle", "", "")
    processes = {ONE: one, TWO: two, "http://spark": spark}
    samples = Samples(
        {"kafka": Heard(cluster, NOW - 1)},
        {"shop": Heard(OutboxFacts([shard]), NOW - 1)},
        {"shop": Heard(lag or OutboxLag(0, 0.0), NOW - 1)},
        {
            url: each if isinstance(each, Heard) else Heard(each, NOW - 1)
            for url, each in processes.items()
        },
        {"main": Heard([hook], NOW - 1)},
    )
    memory = Memory()
    drawing = Drawing(PLAN, samples, memory, NOW, 60.0)
    found = troubles(drawing, samples, memory, NOW)
    return {each["part"]: each["title"] for each in found}


def test_nothing_is_wrong_while_all_is_well() -> None:
    assert told() == {}


@pytest.mark.parametrize("relay", [JUST_PARKED, PARKED], ids=["at once", "later"])
def test_a_parked_event_is_one_trouble_of_its_outbox(relay: ProcessFacts) -> None:
    found = told(relay, shard=replace(SHARD, parked=1))
    assert [*found] == ["outbox/shop"]
    assert "parked" in found["outbox/shop"]


def test_a_parked_event_that_the_outbox_has_not_said_yet_is_a_trouble_all_the_same() -> None:
    assert len(told(JUST_PARKED)) == 1
    assert len(told(PARKED)) == 1


def test_a_relay_that_fails_is_one_trouble_of_that_relay() -> None:
    failing = ProcessFacts("failing", "active", "outage: Kafka refuses its password")
    assert [*told(failing)] == ["relay/shop/relay-1"]


def test_a_standby_that_is_gone_is_one_trouble() -> None:
    found = told(two=DEAD)
    assert [*found] == ["relay/shop/relay-2"]
    assert "does not answer" in found["relay/shop/relay-2"]


def test_an_outbox_whose_relays_are_all_gone_is_one_trouble() -> None:
    lag = OutboxLag(3, 5.0)
    found = told(DEAD, DEAD, shard=replace(SHARD, active=False, standbys=0), lag=lag)
    assert [*found] == ["outbox/shop"]
    assert "no relay is active, and 3 events wait" in found["outbox/shop"]


def test_relays_that_answer_and_cannot_begin_say_why_for_their_outbox() -> None:
    failing = ProcessFacts("failing", "standby", "outage: the role may not read")
    found = told(failing, DEAD, shard=replace(SHARD, active=False, standbys=0))
    assert [*found] == ["relay/shop/relay-1"]


def test_two_relays_with_a_reason_each_are_two_troubles() -> None:
    one = ProcessFacts("failing", "active", "outage: Kafka refuses its password")
    assert {*told(one, DEAD)} == {"relay/shop/relay-1", "relay/shop/relay-2"}


def test_a_backlog_is_one_trouble_of_its_outbox() -> None:
    slow = ProcessFacts(
        "behind", "active", "900 events are waiting, the oldest for 90 s", lag_events=900
    )
    found = told(replace(slow, lag_seconds=90.0))
    assert [*found] == ["outbox/shop"]


def test_a_relay_alone_that_is_behind_is_told() -> None:
    log = ProcessFacts("behind", "active", "9,000,000,000 bytes of the log are not published")
    assert len(told(log)) == 1


def test_a_missing_topic_is_one_trouble_of_the_topic_and_says_who_needs_it() -> None:
    lost = replace(HOOK, state="failing", trouble="topic 'gone' does not exist")
    found = told(missing=["gone"], hook=lost)
    assert [*found] == ["topic/gone"]
    assert "consumer/shipping needs it" in found["topic/gone"]


def test_a_missing_topic_of_a_spark_job_is_one_trouble() -> None:
    assert [*told(missing=["orders"])] == ["topic/orders"]


def test_an_endpoint_that_refuses_is_told_beside_a_missing_topic() -> None:
    refused = replace(HOOK, last_minute={"401": 5})
    assert {*told(missing=["gone"], hook=refused)} == {"topic/gone", "push/main/hook"}
