"""
Fuzz the front doors for a while, and print what was tried: `make fuzz ARGS='--minutes 60'`.

Prints one JSON line for each door. The exit status is 1 if an input broke something; its smallest
form is shown, and kept in `.hypothesis`, from where the next run tries it first.
"""

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support.doors import DOORS, Door

_ROUND = 2_000
"""Inputs of a door in one round; each round begins with another seed."""
_KEPT = DirectoryBasedExampleDatabase(Path(".hypothesis/doors"))


def main() -> None:
    """Read the command line, and try the doors in turn until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, prog="fuzz")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to try")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other inputs")
    parser.add_argument("--door", choices=DOORS, action="append", help="only these")
    args = parser.parse_args()
    names = args.door or list(DOORS)
    tried, broken = dict.fromkeys(names, 0), dict.fromkeys(names, "")
    end, number = time.monotonic() + 60 * args.minutes, args.seed
    while time.monotonic() < end and not all(broken.values()):
        for name in names:
            if not broken[name]:
                count, broken[name] = _round(DOORS[name], number)
                tried[name] += count
        left = max(0.0, end - time.monotonic())
        sys.stderr.write(f"{sum(tried.values()):,} inputs; {left:.0f} s left\n")
        number += 1
    for name in names:
        line = {"door": name, "inputs": tried[name], "findings": int(bool(broken[name]))}
        sys.stdout.write(f"{json.dumps(line)}\n")
    if found := {name: told for name, told in broken.items() if told}:
        sys.exit("\n".join(f"{name}:\n{told}" for name, told in found.items()))


def _round(door: Door, number: int) -> tuple[int, str]:
    """Try inputs; return how many, and what broke."""
    count = 0

    @seed(number)
    @settings(
        database=_KEPT,
        deadline=None,
        max_examples=_ROUND,
        phases=[Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(door.inputs)
    def tries(found: object) -> None:
        nonlocal count
        count += 1
        door.take(found)

    try:
        tries()
    except Exception:  # noqa: BLE001  # whatever it is, it is the finding
        return count, traceback.format_exc(limit=-4)
    return count, ""


if __name__ == "__main__":
    main()
