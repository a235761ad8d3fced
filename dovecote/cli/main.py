"""The command `dovecote`: all commands, or `init` alone where typer is not installed."""

import os
import signal
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

from dedup.rules.policies.departures import Exits
from dovecote.process.logs import last_line
from outbox.errors import BadSettings, DovecoteError
from outbox.lazily import lazy

if TYPE_CHECKING:
    from dovecote.cli.tree import app

__all__ = ["app", "main"]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, {"app": "dovecote.cli.tree"}, extra="relay")


def main() -> None:
    """Run the command; an error of ours goes to stderr, with its status: 1, or 2 for bad usage."""
    if os.getpid() == 1:
        # The kernel hands no signal to process 1 of a container that it has no handler for.
        signal.signal(signal.SIGTERM, _end)
    try:
        if find_spec("typer") is None:
            from dovecote.cli.bare import app as bare

            bare()
        else:
            from dovecote.cli.tree import app

            app()
    except (DovecoteError, Exits) as raised:
        error = raised.reason if isinstance(raised, Exits) else raised
        sys.stderr.write(last_line(error))
        sys.exit(2 if isinstance(error, BadSettings) else getattr(error, "status", 1))


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
