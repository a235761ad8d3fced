"""`dovecote replay`: one operator over a recorded trace, without Kafka or Spark."""

import os
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from typing import Annotated

import typer

from dovecote.cli import printed
from dovecote.cli.extras import needs
from dovecote.cli.options import CheckOption, RequiredConfigOption


class Operator(StrEnum):
    """The operators that can be replayed; the names of all are here, so that a shell has them."""

    FIRST_MATCH = "first_match"
    EXACT = "exact"
    LATEST = "latest"
    AGGREGATION = "aggregation"
    DELAY = "delay"
    PAIRING = "pairing"
    SESSIONS = "sessions"


def replay(
    *,
    operator: Annotated[
        Operator,
        typer.Argument(
            metavar="OPERATOR",
            help=f"One of {', '.join(Operator)}.",
            show_default=False,
        ),
    ],
    config: RequiredConfigOption,
    check: CheckOption = False,
) -> None:
    """
    Run one operator over a recorded trace.

    It needs neither Kafka nor Spark. It reads the trace from standard input, one JSON object a
    line, and writes the fate of each record to standard output, one JSON object a line. The
    settings have a table [operator]; for an aggregation the file is its step.

    Example: dovecote replay first_match --config orders.toml < records.jsonl > results.jsonl

    The exit status is 1 if a line of the trace is bad, and 2 for bad usage or settings.
    """
    with needs("consume", user="dovecote replay"):
        from dedup.replay.replay import OPERATORS as POLICIES
        from dedup.replay.replay import replay as run
        from dedup.replay.replay import start
        from dedup.replay.trace import to_json

    # Filters and handlers are the user's modules; those in the way of installed ones lose.
    sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds strings
    if operator in POLICIES:
        running = start(operator, config, environ=os.environ)
    else:
        with needs("spark", user=f"replay {operator}"):
            from spark_jobs.operators.replay import OPERATORS

            running = start(operator, config, environ=os.environ, operators=OPERATORS)
    if check:
        return
    out = sys.stdout.buffer
    with redirect_stdout(sys.stderr):  # what a handler prints is no result
        try:
            for line in run(running, sys.stdin.buffer):
                out.write(_shown(to_json(line)) + b"\n")
        finally:
            out.flush()


def _shown(line: bytes) -> bytes:
    """Return JSON that steers no terminal; it has the same value."""
    text = line.decode()
    return line if text.isprintable() else printed.visible(text).encode()
