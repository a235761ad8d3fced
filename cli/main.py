"""One command, `dovecote`: each subcommand lives in the module of its name."""

import sys

import typer

from outbox.errors import DovecoteError

app = typer.Typer(
    name="dovecote",
    help="Reliable events: Postgres to Kafka, exactly once, in order per key.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command; a `DovecoteError` becomes one line on stderr and exit status 1."""
    try:
        app()
    except DovecoteError as error:
        sys.stderr.write(f"dovecote: {error}\n")
        sys.exit(1)
