"""One command, `dovecote`: each subcommand lives in the module of its name."""

import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dovecote.cli.printed import visible
from outbox.errors import BadSettings, DovecoteError

_COMMANDS = (
    "consume",
    "demo",
    "doctor",
    "init",
    "relay",
    "replay",
    "reconcile",
    "reshard",
    "schema",
    "status",
    "spark",
    "dead",
    "parked",
    "push",
    "stack",
)
"""Each is in the module of its name: a function, or an app with commands of its own."""


class _Commands(TyperGroup):
    """Imports the command that is asked for alone: a relay starts in half the time."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  # typer's own click
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002  # as above
        if cmd_name not in _COMMANDS:
            return None
        found = getattr(import_module(f"{__package__}.{cmd_name}"), cmd_name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(
                add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
            )
            alone.command()(found)
            found = alone
        command = get_command(found)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # as above
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # What pydantic puts in front of it says nothing to whoever mistyped an option.
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="dovecote",
    cls=_Commands,
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


def main() -> None:
    """Run the command; an error of ours goes to stderr, with exit status 1 (2: bad usage)."""
    try:
        app()
    except DovecoteError as error:
        sys.stderr.write(f"dovecote: {visible(str(error))}\n")
        sys.exit(2 if isinstance(error, BadSettings) else 1)
