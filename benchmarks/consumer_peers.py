"""
The consumer compared with the keyed loop that one writes by hand: `make bench-consumer_peers`.

Both read the same topic, each as a group and a process of its own, and take turns. The handler
checks the order and counts; with an async load ours has an async handler, and the loop has its
threads. The last line of a load has the ratios of the medians: ours divided by the loop's.
"""

import argparse
from collections.abc import Mapping, Sequence
from statistics import median
from uuid import uuid4

from benchmarks import harness
from benchmarks.dedup_consumer import CHILD, Load, consumed, fill

LOADS = [
    Load(0, 100, 600_000),
    Load(0, 1_000, 600_000, handler="async"),
    Load(10, 100, 30_000),
]
_THREADS = 100
_LOOP = "from benchmarks.keyed_loop import main; main()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of loads, from 0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, help="of each load without work")
    parser.add_argument("--bootstrap", help="a Kafka that runs already")
    args = parser.parse_args()
    loads = [load for n, load in enumerate(LOADS) if not args.only or n in args.only]
    if args.records:
        loads = [
            each._replace(records=args.records) if not each.work_ms else each for each in loads
        ]
    if args.bootstrap:
        for load in loads:
            measure(args.bootstrap, load, args.rounds)
        return
    with harness.servers() as stack:
        for load in loads:
            measure(stack.kafka.bootstrap, load, args.rounds)


def measure(bootstrap: str, load: Load, rounds: int) -> None:
    """Run both in turn, and print each run and the ratios of the medians."""
    topic = harness.topic_at(bootstrap)
    fill(bootstrap, topic, load)
    found: dict[str, list[Mapping[str, float]]] = {"dovecote": [], "keyed_loop": []}
    for _ in range(rounds):
        for name, code in (("dovecote", CHILD), ("keyed_loop", _LOOP)):
            lanes = load.lanes if name == "dovecote" else _THREADS
            run = _run(code, bootstrap, topic, load._replace(lanes=lanes))
            found[name].append(run)
            told = load._replace(lanes=lanes)._asdict()
            harness.emit("consumer_peers", consumer=name, **told, **run)
    ours, loop = found["dovecote"], found["keyed_loop"]
    harness.emit(
        "consumer_peers_ratios",
        **load._asdict(),
        cpu_us_per_record=_ratio(ours, loop, "cpu_us_per_record"),
        records_per_s=_ratio(ours, loop, "records_per_s"),
    )


def _run(code: str, bootstrap: str, topic: str, load: Load) -> Mapping[str, float]:
    group = f"{topic}-{uuid4().hex[:8]}"
    found = consumed(code, bootstrap, topic, load, group=group)
    return {
        "records_per_s": round(found["handled"] / found["seconds"]),
        "cpu_us_per_record": round(found["cpu"] / max(1, found["handled"]) * 1e6, 2),
        "peak_mb": round(found["peak_bytes"] / 1e6),
        "order_violations": found["violations"],
        "lost": load.records - found["handled"],
        "duplicates": found["duplicates"],
    }


def _ratio(
    ours: Sequence[Mapping[str, float]], loop: Sequence[Mapping[str, float]], field: str
) -> float:
    ratio = median(each[field] for each in ours) / median(each[field] for each in loop)
    return round(ratio, 2)


if __name__ == "__main__":
    main()
