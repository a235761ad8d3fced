"""
The cost where nobody looks: `make bench-costs`.

Imports and commands, the start of each part up to its first event, each part while nothing
happens, the embedded servers of a test, and the bytes that Postgres and Kafka write for an event.
"""

import argparse

from benchmarks import harness
from benchmarks.costing import disk, idle, imports, starts, testing

_KINDS = ("imports", "starts", "idle", "testing", "disk")


def main() -> None:
    """Measure what was asked for, and print a JSON line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=_KINDS, default=_KINDS)
    parser.add_argument("--rounds", type=int, default=5, help="of imports, starts and testing")
    parser.add_argument("--seconds", type=float, default=20.0, help="of idling")
    args = parser.parse_args()
    if "imports" in args.only:
        imports.measure(args.rounds)
    if "testing" in args.only:
        testing.measure(args.rounds)
    if {"starts", "idle", "disk"}.isdisjoint(args.only):
        return
    with harness.servers() as stack:
        if "starts" in args.only:
            starts.measure(stack, args.rounds)
        if "idle" in args.only:
            idle.measure(stack, args.seconds)
        if "disk" in args.only:
            disk.measure(stack)


if __name__ == "__main__":
    main()
