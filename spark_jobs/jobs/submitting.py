"""The options, the log and the exit status that the programs for spark-submit share."""

import argparse
import logging
import sys
from collections.abc import Callable

from dovecote.process.logs import LogFormat, LogLevel, configure, last_line
from outbox.errors import BadSettings, DovecoteError


def options(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that all of these programs have."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--adopt", action="store_true", help="take over another query's markers")
    parser.add_argument("--json", action="store_true", help="one JSON line per batch on stdout")
    parser.add_argument("--log-format", choices=list(LogFormat), default="text", type=LogFormat)
    parser.add_argument("--log-level", choices=list(LogLevel), default="info", type=LogLevel)
    return parser


def submitted(given: argparse.Namespace, run: Callable[[], None]) -> int:
    """Run a job, with its log; return its exit status: 0 done, 1 failed, 2 bad usage."""
    configure(given.log_format, given.log_level)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the job reports the same errors
    try:
        run()
    except DovecoteError as error:
        sys.stderr.write(last_line(error))
        return 2 if isinstance(error, BadSettings) else 1
    return 0
