"""The options, the log and the exit status that the programs for spark-submit share."""

import argparse
import logging
import sys
from collections.abc import Callable, Iterable
from typing import TypeAlias

from dovecote.process.logs import LogFormat, LogLevel, configure, last_line
from dovecote.process.signals import INTERRUPTED
from outbox.errors import BadSettings, DovecoteError
from spark_jobs.jobs.check import Checkpoints, Finding


def options(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that all of these programs have."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--adopt", action="store_true", help="take over another query's markers")
    parser.add_argument("--check", action="store_true", help="look whether the job could run")
    parser.add_argument("--json", action="store_true", help="one JSON line per batch on stdout")
    parser.add_argument("--log-format", choices=list(LogFormat), default="text", type=LogFormat)
    parser.add_argument("--log-level", choices=list(LogLevel), default="info", type=LogLevel)
    return parser


Findings: TypeAlias = Callable[[Checkpoints], Iterable[Finding]]
"""Looks whether a job could run; gets what looks into checkpoints with the cluster's jars."""


def submitted(
    given: argparse.Namespace, load: Callable[[], tuple[Callable[[], None], Findings]]
) -> int:
    """
    Run a job, with its log; return its exit status.

    It is 0 for done, 1 for failed, 2 for bad usage, and 130 for interrupted.

    `load` returns what runs the job, and what looks whether it could run.
    """
    configure(given.log_format, given.log_level)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the job reports the same errors
    try:
        run, look = load()
        if given.check:
            return _checked(look)
        run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except DovecoteError as error:
        sys.stderr.write(last_line(error))
        return 2 if isinstance(error, BadSettings) else 1
    return 0


def _checked(look: Findings) -> int:
    failed = False
    with Checkpoints(master=None) as checkpoints:
        for what, problem in look(checkpoints):
            sys.stdout.write(
                f"ok    {what}\n" if problem is None else f"FAIL  {what}: {problem}\n"
            )
            failed |= problem is not None
    return 1 if failed else 0
