"""The picture has every part, says a source's trouble once, and is made quickly."""

import json
from time import process_time

from dovecote.console.rules.facts import (
    ClusterFacts,
    Heard,
    Samples,
    SubscriptionFacts,
    TopicFacts,
)
from dovecote.console.rules.motion import Memory, counts
from dovecote.console.rules.picture import Drawing
from dovecote.console.rules.plan import Plan, PushPlan, ReaderPlan
from dovecote.console.rules.telling import flow
from tests.support.waiting import patient

NOW = 1_000_000.0
PLAN = Plan(
    [],
    [ReaderPlan("consumer", "shipping", "kafka", [], "shipping", ["orders-0", "gone"], {})],
    [PushPlan("main", "kafka", [], has_api=True)],
)


def _samples(subscriptions: int, topics: int, error: str = "") -> Samples:
    names = [f"orders-{number}" for number in range(topics)]
    cluster = ClusterFacts({each: TopicFacts(3, 0, 10, 10) for each in names}, {})
    told = [
        SubscriptionFacts(
            id=f"sub-{number}",
            topics=[names[number % topics]],
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
        for number in range(subscriptions)
    ]
    failing = NOW - 1 if error else None
    return Samples(
        {"kafka": Heard(cluster, NOW - 2, error, failing)},
        {},
        {},
        {},
        {"main": Heard(told, NOW - 1)},
    )


def test_a_missing_topic_is_a_trouble_and_the_part_that_needs_it_is_red() -> None:
    samples, memory = _samples(1, 1), Memory()
    drawing = Drawing(PLAN, samples, memory, NOW, 60.0)
    told = flow(drawing, samples, memory, NOW, every=2.0, write=False, history="own")
    states = {each["id"]: each["state"] for each in told["nodes"]}
    assert states == {
        "consumer/shipping": "failing",
        "push/main": "idle",
        "push/main/sub-0": "idle",
        "topic/orders-0": "idle",
        "topic/gone": "failing",
    }
    assert [each["part"] for each in told["troubles"]] == ["topic/gone"]
    ways = {(each["from"], each["to"]) for each in told["edges"]}
    assert ("topic/orders-0", "push/main/sub-0") in ways


def test_a_broker_that_is_away_is_one_trouble_and_leaves_none_of_its_topics_green() -> None:
    samples, memory = _samples(1, 50, "Connection refused"), Memory()
    drawing = Drawing(PLAN, samples, memory, NOW, 60.0)
    told = flow(drawing, samples, memory, NOW, every=2.0, write=False, history="own")
    assert [each["part"] for each in told["troubles"]] == ["kafka/kafka"]
    topics = [each["state"] for each in told["nodes"] if each["kind"] == "topic"]
    assert set(topics) == {"failing"}


def test_a_picture_of_2000_subscriptions_and_500_topics_takes_well_under_a_second() -> None:
    samples, memory = _samples(2_000, 500), Memory()
    began = process_time()
    memory.follow(counts(PLAN, samples))
    drawing = Drawing(PLAN, samples, memory, NOW, 60.0)
    memory.settle({each.id: each.judged.state for each in drawing.nodes.values()}, NOW)
    told = flow(drawing, samples, memory, NOW, every=2.0, write=False, history="own")
    text = json.dumps(told, separators=(",", ":"))
    assert process_time() - began < patient(0.5)
    assert len(told["nodes"]) == 2_503
    assert len(text) < 1_000_000
    print(f"{process_time() - began:.3f} s, {len(text):,} bytes")  # noqa: T201  # shown with -s
