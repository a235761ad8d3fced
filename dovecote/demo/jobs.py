"""
Run the demo's Spark jobs with a service and a relay that run elsewhere, and check the results.

`python -m dovecote.demo.jobs run FOLDER` keeps files and checkpoints in FOLDER. With `check` it
compares all topics with the service's tables, and exits with 1 while anything is missing.
"""

import argparse
import os
import sys
from pathlib import Path

from dovecote.demo import configs, topics
from dovecote.demo.check.evidence import EvidenceMissing, Where
from dovecote.demo.check.verdict import agrees, judge, numbers
from dovecote.demo.children import dovecote
from dovecote.demo.comparing import look


def main() -> None:
    """Run the jobs, or check what they made."""
    parser = argparse.ArgumentParser(prog="python -m dovecote.demo.jobs", description=main.__doc__)
    dsn = os.environ.get("DOVECOTE_DSN")
    parser.add_argument("--dsn", required=dsn is None, default=dsn)
    parser.add_argument("--bootstrap", required=True)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run").add_argument("folder", type=Path)
    commands.add_parser("check")
    given = parser.parse_args()
    if given.command == "run":
        _run(given.folder, given.dsn, given.bootstrap)
    sys.exit(_check(Where(given.dsn, given.bootstrap)))


def _run(folder: Path, dsn: str, bootstrap: str) -> None:
    """Replace this process by the jobs."""
    topics.make(bootstrap)
    folder.mkdir(parents=True, exist_ok=True)
    files = configs.write(folder, dsn=dsn, bootstrap=bootstrap)
    jobs = [str(file) for file in (files.dedup, files.trips, files.days)]
    command = dovecote("spark", "together", *jobs)
    os.execv(command[0], command)  # noqa: S606  # our own command


def _check(where: Where) -> int:
    try:
        found = look(where)
    except EvidenceMissing as error:
        sys.stderr.write(f"not yet: {error}\n")
        return 1
    lines = judge(numbers(*found, kills=0, seconds=0), kills=0)
    for line in lines:
        sys.stdout.write(f"{line.what} {line.number}{'' if line.is_right else ' (wrong)'}\n")
    for note in found.notes[:20]:
        sys.stderr.write(f"{note}\n")
    return 0 if agrees(lines) else 1


if __name__ == "__main__":
    main()
