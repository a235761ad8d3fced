"""
Dovecote beside other programs on the same work, in turn: `make bench-peers`.

Each kind of work has servers and processes of its own. A peer that cannot be had on this machine
is named with what to install, and the rest goes on. At the end, a line for each peer has ours
divided by the peer's, of the medians: a `rate` above 1 says that ours is faster, and a `cpu` below
1 that it costs less of the processor. The exit status is 1 if a contender has failed, or if one of
ours lost, disordered or invented a record.
"""

import argparse
import json
import subprocess
import sys

from benchmarks import harness
from benchmarks.beside.figures import FAULT, RATIO, Line, faults, is_failure, parsed, ratios
from benchmarks.beside.turns import Wanted

WORKS = ("relay", "consumer", "consumer_work", "push", "sessions", "dedup")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--rounds", type=_positive, default=3, help="measurements of each")
    parser.add_argument("--records", type=_positive, help="of each measurement")
    parser.add_argument(
        "--rates", type=_positive, nargs="*", default=[5_000], help="of the relay's latency"
    )
    args = parser.parse_args()
    wanted = Wanted(args.rounds, args.records, args.rates)
    lines: list[Line] = []
    failed = False
    for work in args.only:
        failed |= _measured(work, wanted, lines)
    for fault in faults(lines):
        harness.emit(FAULT, **fault)
        failed |= is_failure({"bench": FAULT, **fault})
    for ratio in ratios(lines):
        harness.emit(RATIO, **ratio)
    return int(failed or any(map(is_failure, lines)))


def _measured(work: str, wanted: Wanted, lines: list[Line]) -> bool:
    """Print and keep the lines of one kind of work; return whether it has failed."""
    command = [sys.executable, "-m", "benchmarks.beside", work, json.dumps(wanted._asdict())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for text in process.stdout or ():
            print(text, end="", flush=True)
            if (line := parsed(text)) is not None:
                lines.append(line)
    if process.returncode:
        print(f"{work} has failed with {process.returncode}, see above", file=sys.stderr)
    return process.returncode != 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
