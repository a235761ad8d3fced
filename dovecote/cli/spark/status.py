"""`dovecote spark status`: how running jobs are doing."""

import json
import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dovecote.cli import printed
from dovecote.cli.options import ConfigsOption, JsonOption
from dovecote.cli.spark.environment import require_spark
from dovecote.observe.rules.counted import counted
from dovecote.process.states import exit_status

if TYPE_CHECKING:  # it needs PySpark's companions, which may not be installed
    from spark_jobs.query.status import Status

_HEADS = ("QUERY", "IS", "ROWS/S", "LAG", "BATCH", "OPEN", "KEYS", "STATE", "SAYS")
_CLEAR = "\x1b[H\x1b[J"


def status(
    *,
    config: ConfigsOption,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="With --watch: the time in between."),
    ] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """
    Show rate, lag, batch time and state of running jobs.

    It asks each job at its `http.port`; give --config once for each job. The exit status is 1 if
    one of the jobs does not work.

    Example: dovecote spark status --config orders.toml --config calls.toml --watch
    """
    require_spark()
    from spark_jobs.jobs.files import load_all
    from spark_jobs.query.status import address, look

    # A user's aggregate may be named in the settings, but is not called here.
    jobs = load_all(config, environ=os.environ)
    places = [(job.spark.query, address(job), job.spark.checkpoint) for job in jobs]
    while True:
        found = [look(*place) for place in places]
        if as_json:
            for each in found:
                typer.echo(json.dumps(asdict(each)))
        else:
            if watch and sys.stdout.isatty():
                typer.echo(_CLEAR, nl=False)
            typer.echo(table(found))
        if not watch:
            raise typer.Exit(exit_status(each.state for each in found))
        time.sleep(every)


def table(found: "list[Status]") -> str:
    """Return the jobs as a table."""
    rows = [_HEADS, *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _row(each: "Status") -> tuple[str, ...]:
    if not each.ready and not each.batches:
        return (
            each.query,
            each.state.value,
            *["-"] * (len(_HEADS) - 3),
            printed.text(each.reason),
        )
    return (
        each.query,
        each.state.value,
        f"{each.rows_per_s:,.0f}",
        f"{counted(each.lag_rows, 'row')}, {each.lag_seconds:.1f} s",
        f"{each.batch_seconds:.2f} s",
        f"{each.open:,}",
        f"{each.keys:,}",
        f"{each.state_bytes:,} B",
        printed.text(each.reason),
    )
