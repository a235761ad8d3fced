"""`dovecote replay`: one operator over a recorded trace, without Kafka or Spark."""

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from outbox.errors import BadSettings


def replay(
    operator: Annotated[
        str,
        typer.Argument(
            help=(
                "What to run: first_match, exact, latest, aggregation, delay, pairing or sessions."
            ),
            show_default=False,
        ),
    ],
    config: Annotated[
        Path,
        typer.Option(
            help="TOML file with an [operator] table; of an aggregation: its step.",
            show_default=False,
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Check the settings, and read no trace.")
    ] = False,
) -> None:
    """
    Run one operator over a recorded trace, without Kafka or Spark.

    Reads the trace from standard input, one JSON object a line, and writes what becomes of each
    record to standard output, one JSON object a line.

    Example: dovecote replay first_match --config orders.toml < records.jsonl > results.jsonl

    Exit status: 0 done, 1 a line of the trace is bad, 2 bad usage or settings.
    """
    try:
        from dedup.replay.replay import replay as run
        from dedup.replay.replay import start
        from dedup.replay.trace import to_json
        from spark_jobs.operators.replay import OPERATORS
    except ModuleNotFoundError as error:
        msg = f"replay needs {error.name}: pip install './dovecote[spark]'"
        raise BadSettings(msg) from error

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
