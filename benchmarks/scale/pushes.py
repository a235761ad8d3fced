"""Measure what a delivery costs `push`, over its subscriptions in one process."""

from benchmarks import harness, pushed
from benchmarks.push_delivery import KEYS
from benchmarks.scale.points import Curve, Point, sizes
from dovecote.devstack import Stack

_DELIVERIES = 40_000
_IN_FLIGHT = 100


def subscriptions(stack: Stack, most: int) -> Curve:
    """Return the cost over the subscriptions, which share a topic and get each of its records."""
    with pushed.target() as target:
        points = [_point(stack, target, size) for size in sizes(1, most)]
    cost = "processor time of push"
    return Curve("push-subscriptions", "subscriptions in one process", cost, tuple(points))


def _point(stack: Stack, target: pushed.Target, size: int) -> Point:
    bootstrap = stack.kafka.bootstrap
    topic, records = harness.topic_at(bootstrap), max(1, _DELIVERIES // size)
    in_flight = max(1, _IN_FLIGHT // size)
    wanted = [
        pushed.subscription(f"{topic}-{each}", topic, target.url("also-fast"), in_flight)
        for each in range(size)
    ]
    producing = pushed.Records(bootstrap, linger=20)
    target.begin_anew()
    with pushed.pusher(bootstrap, wanted) as push:

        def delivered(number: int) -> float:
            """Return the processor time once each has delivered this many records."""

            def done() -> bool:
                came: int = target.told()["requests"].get("/also-fast", 0)
                return came >= number * size

            harness.until(done, within=900, what=f"{number * size} deliveries", every=0.2)
            return push.told()["cpu"]

        # Each has its partitions before the clock starts.
        producing.produce(topic, 0, KEYS)
        producing.flush()
        before = delivered(1)
        for number in range(1, records + 1):
            producing.produce(topic, number, KEYS)
        producing.flush()
        used = delivered(1 + records) - before
        peak = round(harness.peak_bytes(push.pid) / 1e6, 1)
    return Point(size, round(used / (records * size) * 1e6, 1), peak)
