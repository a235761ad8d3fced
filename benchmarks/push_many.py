"""
Many subscriptions in one process of `push`: `make bench-push_many`.

All of them read one topic of four partitions. The first record is there before they begin, so each
has begun once it has delivered one. `first` begins with no group and no topic of theirs, `again`
goes on where the process before ended. `idle` is the processor time while nothing comes.
"""

import argparse
import time
from collections.abc import Sequence

from benchmarks import harness, pushed
from benchmarks.push_delivery import KEYS

SUBSCRIPTIONS = (10, 100, 300, 900)
IDLE_SECONDS = 15.0
# Polls become rarer after five seconds without a record.
_REST_SECONDS = 6.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, action="append", help="so many subscriptions")
    wanted: Sequence[int] = parser.parse_args().only or SUBSCRIPTIONS
    with harness.servers() as stack, pushed.target() as target:
        for number in wanted:
            _measure(stack.kafka.bootstrap, stack.kafka.pid, target, number)


def _measure(bootstrap: str, broker: int, target: pushed.Target, number: int) -> None:
    topic = harness.topic_at(bootstrap)
    wanted = [
        pushed.subscription(f"{topic}-{each}", topic, target.url("also-fast"), 1)
        for each in range(number)
    ]
    producing = pushed.Records(bootstrap, linger=20)
    for start in ("first", "again"):
        target.begin_anew()
        producing.produce(topic, 0, KEYS)
        producing.flush()
        began = time.monotonic()
        with pushed.pusher(bootstrap, wanted) as push:
            used = _begun(push, target, number)
            seconds = time.monotonic() - began
            time.sleep(_REST_SECONDS)
            at = time.monotonic()
            before = [harness.cpu_seconds(each) for each in (push.pid, broker)]
            time.sleep(IDLE_SECONDS)
            idle = time.monotonic() - at
            after = [harness.cpu_seconds(each) for each in (push.pid, broker)]
            of_push, of_broker = (
                round(1e3 * (late - early) / idle / number, 2)
                for early, late in zip(before, after, strict=True)
            )
            harness.emit(
                "push_many",
                subscriptions=number,
                start=start,
                begun_seconds=round(seconds, 1),
                begun_cpu_ms=round(1e3 * used / number, 1),
                idle_ms_per_s=of_push,
                idle_broker_ms_per_s=of_broker,
                mb=round(harness.peak_bytes(push.pid) / 1e6),
            )


def _begun(push: pushed.Pusher, target: pushed.Target, number: int) -> float:
    """Return the processor time once each subscription has delivered a record."""
    what = f"{number} subscriptions"

    def came() -> bool:
        return bool(target.told()["requests"].get("/also-fast", 0) >= number)

    # Push has work to do for these counts, so it is asked only when all may be done.
    harness.until(came, within=600, what=what, every=0.2)
    told: dict[str, float] = {}

    def begun() -> bool:
        told.update(push.told())
        return sum(count > 0 for name, count in told.items() if name != "cpu") == number

    harness.until(begun, within=60, what=what, every=1)
    return told["cpu"]


if __name__ == "__main__":
    main()
