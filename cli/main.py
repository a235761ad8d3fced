"""One command, `dovecote`: each subcommand lives in the module of its name."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from cli.consume import consume
from cli.dead import dead
from cli.demo import demo
from cli.doctor import doctor
from cli.init import init
from cli.parked import parked
from cli.relay import relay
from cli.replay import replay
from cli.reshard import reshard
from cli.spark import app as spark
from cli.stack import stack
from cli.status import status
from outbox.errors import BadSettings, DovecoteError

app = typer.Typer(
    name="dovecote",
    help="Reliable events: Postgres to Kafka, exactly once, in order per key.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dovecote {version('dovecote')}")
        raise typer.Exit


@app.callback()
def dovecote(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and end.")
    ] = False,
) -> None:
    """Reliable events: Postgres to Kafka, exactly once, in order per key."""


app.command()(consume)
app.command()(demo)
app.command()(doctor)
app.command()(init)
app.command()(relay)
app.command()(replay)
app.command()(reshard)
app.command()(status)
app.add_typer(spark, name="spark")
app.add_typer(dead)
app.add_typer(parked)
app.add_typer(stack)


def main() -> None:
    """Run the command; an error of ours goes to stderr, with exit status 1 (2: bad usage)."""
    try:
        app()
    except DovecoteError as error:
        sys.stderr.write(f"dovecote: {error}\n")
        sys.exit(2 if isinstance(error, BadSettings) else 1)
