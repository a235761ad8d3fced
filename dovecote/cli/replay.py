"""`dovecote replay`: one operator over a recorded trace, without Kafka or Spark."""

import os
import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from dovecote.cli.extras import needs
from dovecote.cli.options import CheckOption, RequiredConfigOption


def replay(
    *,
    operator: Annotated[
        str,
        typer.Argument(
            metavar="OPERATOR",
            help="One of first_match, exact, latest, aggregation, delay, pairing, sessions.",
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
    with needs("spark", user="replay"):
        from dedup.replay.replay import replay as run
        from dedup.replay.replay import start
        from dedup.replay.trace import to_json
        from spark_jobs.operators.replay import OPERATORS

    # Filters and handlers are the user's modules; those in the way of installed ones lose.
    sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds strings
    running = start(operator, config, environ=os.environ, operators=OPERATORS)
    if check:
        return
    out = sys.stdout.buffer
    with redirect_stdout(sys.stderr):  # what a handler prints is no result
        try:
            for line in run(running, sys.stdin.buffer):
                out.write(to_json(line) + b"\n")
        finally:
            out.flush()
