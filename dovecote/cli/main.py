"""The command `dovecote`: all commands, or `init` alone where typer is not installed."""

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

# Little is imported here, because Ctrl-C shows a traceback before `main` has begun.
from dovecote.process.signals import INTERRUPTED, beginning

if TYPE_CHECKING:
    from dovecote.cli.tree import app

__all__ = ["app", "main"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "app":  # the import of `main` itself asks for `__path__`
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        from outbox.lazily import lazy

        return lazy(__name__, {"app": "dovecote.cli.tree"}, extra="relay")(name)


def main() -> None:
    """
    Run the command; an error of ours goes to stderr, with its status: 1, or 2 for bad usage.

    Ctrl-C ends it with 130 and without a traceback, from here on.
    """
    if os.getpid() == 1:
        # The kernel hands no signal to process 1 of a container that it has no handler for.
        signal.signal(signal.SIGTERM, _end)
    with beginning():
        from importlib.util import find_spec

        from dedup.rules.policies.departures import Exits
        from dovecote.process.logs import last_line
        from outbox.errors import BadSettings, DovecoteError

        if find_spec("typer") is None:
            from dovecote.cli.bare import app as run
        else:
            from dovecote.cli.tree import app as run
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (DovecoteError, Exits) as raised:
        error = raised.reason if isinstance(raised, Exits) else raised
        sys.stderr.write(last_line(error))
        sys.exit(2 if isinstance(error, BadSettings) else getattr(error, "status", 1))


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
