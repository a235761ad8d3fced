"""
Measure the cost of an event as the work grows: `make scale`.

Each curve has points at powers of ten, measured in one run, on one machine. It is printed as JSON
lines, and drawn into a folder, where the documents have it. `slope` is the change of the cost for
ten times the work, as a share of the cost: 0 is flat.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import harness
from benchmarks.scale import consumers, jobs, pushes, relays
from benchmarks.scale.points import Curve
from dovecote.devstack import Stack

_Measure = Callable[[Stack, int], Curve]

CURVES: Mapping[str, tuple[_Measure, int]] = {
    "relay-backlog": (relays.backlog, 1_000_000),
    "relay-keys": (relays.keys, 1_000_000),
    "relay-topics": (relays.topics, 1_000),
    "relay-shards": (relays.shards, 4),
    "relay-retained": (relays.retained, 1_000_000),
    "consumer-backlog": (consumers.backlog, 1_000_000),
    "consumer-keys": (consumers.keys, 1_000_000),
    "inbox-ids": (consumers.inbox, 10_000_000),
    "push-subscriptions": (pushes.subscriptions, 100),
    "spark-executors": (jobs.executors, 2),
}
"""How each curve is measured, and up to which size by default."""


def main() -> None:
    """Measure the curves that were asked for, print them, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CURVES, default=list(CURVES))
    parser.add_argument("--most", type=int, help="the largest size, instead of each curve's own")
    parser.add_argument("--folder", type=Path, help="draw the curves into this folder, as SVG")
    args = parser.parse_args()
    for name in args.only:
        measure, most = CURVES[name]
        with harness.servers() as stack:
            curve = measure(stack, args.most or most)
        _tell(curve)
        if args.folder is not None:
            # The rest does not need what draws.
            from benchmarks.scale.drawing import draw

            args.folder.mkdir(parents=True, exist_ok=True)
            draw(curve, args.folder / f"{curve.name}.svg")


def _tell(curve: Curve) -> None:
    for each in curve.points:
        more = {"peak_mb": each.peak_mb, "per_s": each.per_s}
        known = {name: value for name, value in more.items() if value is not None}
        harness.emit("scale", curve=curve.name, size=each.size, cost_us=each.cost_us, **known)
    harness.emit(
        "scale",
        curve=curve.name,
        over=curve.over,
        slope=round(curve.slope, 3),
        largest_over_smallest=round(curve.spread, 2),
    )


if __name__ == "__main__":
    main()
