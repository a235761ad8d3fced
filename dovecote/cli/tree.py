"""One command, `dovecote`: each of its groups is a package, each other command a module."""

from importlib.metadata import version
from typing import Annotated, Any, ClassVar

import typer

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "init": "init.group:init",
        "relay": "relay:relay",
        "consume": "consume:consume",
        "push": "push:push",
        "spark": "spark:spark",
        "replay": "replay:replay",
        "schema": "schema:schema",
        "topic": "topic:topic",
        "dead": "dead:dead",
        "find": "find:find",
        "audit": "audit:audit",
        "console": "console:console",
        "contracts": "contracts:contracts",
        "stack": "stack:stack",
        "demo": "demo:demo",
    }

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # typer's own click
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Pydantic puts this before the message, and it means nothing to a user.
            error.message = error.message.removeprefix("Value error, ")
            raise


_SUMMARY = "Reliable events: Postgres to Kafka, exactly once, in order per key."

app = App("dovecote", _SUMMARY, cls=_Commands, add_completion=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dovecote {version('dovecote')}")
        raise typer.Exit


@app.callback()
def dovecote(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Define the options of `dovecote` itself."""
