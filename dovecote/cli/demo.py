"""`dovecote demo`: real flights from Postgres to a deduplicated Kafka topic, and proof of it."""

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from outbox.errors import BadSettings, DovecoteError

# With fewer, hardly a flight is late or early enough to be retried or refused.
_FEWEST_FLIGHTS = 500
_MOST_FLIGHTS = 336_776
_NOTES_SHOWN = 20


def demo(
    *,
    flights: Annotated[
        int,
        typer.Option(
            min=_FEWEST_FLIGHTS, max=_MOST_FLIGHTS, help="how many of the year's flights"
        ),
    ] = 15_000,
    writers: Annotated[
        int, typer.Option(min=1, max=32, help="concurrent writers of the service")
    ] = 4,
    kills: Annotated[
        int, typer.Option(min=0, max=20, help="how often the relay is killed with SIGKILL")
    ] = 2,
    keep: Annotated[
        Path | None,
        typer.Option(help="new folder for configuration files, logs and checkpoint, which stay"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON line on stdout, all else on stderr")
    ] = False,
) -> None:
    """
    Run the whole pipeline on real flights, kill the relay on the way, and check the result.

    Exit status 1 unless nothing was lost, doubled, out of order or wrongly deduplicated.

    Example: dovecote demo --flights 5000 --keep demo-run
    """
    try:
        from rich.console import Console

        from dovecote.demo.run import Options, run
        from dovecote.demo.view import show_table, shown
    except ModuleNotFoundError as error:
        msg = f"the demo needs {error.name}: pip install './dovecote[demo]'"
        raise BadSettings(msg) from error
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        msg = f"--keep {keep} exists and is not an empty folder; name a new one"
        raise BadSettings(msg)
    directory = (keep or Path(tempfile.mkdtemp(prefix="dovecote-demo-"))).absolute()
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=as_json)
    try:
        with shown(console) as view:
            outcome = run(
                Options(directory=directory, flights=flights, writers=writers, kills=kills), view
            )
    except BaseException:
        sys.stderr.write(f"logs, configuration files and checkpoint are in {directory}\n")
        raise
    show_table(console, outcome.lines)
    for note in outcome.notes[:_NOTES_SHOWN]:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if keep is not None or not outcome.is_well:
        console.print(f"logs, configuration files and checkpoint: {directory}", soft_wrap=True)
    else:
        shutil.rmtree(directory)
    if as_json:
        typer.echo(json.dumps(outcome.numbers.as_dict()))
    if not outcome.is_well:
        msg = "the numbers do not agree"
        raise DovecoteError(msg)


def _interrupt(_: int, __: FrameType | None) -> None:
    """End as Ctrl-C does: whatever was started is ended in order."""
    raise KeyboardInterrupt
