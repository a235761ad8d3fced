"""The command `dovecote`: all commands, or `init` alone where typer is not installed."""

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

# Little is imported here, because Ctrl-C shows a traceback before `main` has begun.
from dovecote.process.signals import INTERRUPTED, beginning

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

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
    with _written_out():
        try:
            run()
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (DovecoteError, Exits) as raised:
            error = raised.reason if isinstance(raised, Exits) else raised
            sys.stderr.write(last_line(error))
            sys.exit(2 if isinstance(error, BadSettings) else getattr(error, "status", 1))


class _Stdout(io.FileIO):
    """Standard output, which remembers that something could not be written to it."""

    error: OSError | None = None

    def write(self, given: "Buffer", /) -> int:
        try:
            return super().write(given)
        except OSError as error:
            self.error = error
            raise


@contextmanager
def _written_out() -> Iterator[None]:
    """If the output of the block cannot be written, end with 1, and say why."""
    before = sys.stdout
    # Tests, and programs that call us, may have another one; there may be none at all.
    if not isinstance(before, io.TextIOWrapper) or before is not sys.__stdout__:
        yield
        return
    raw = _Stdout(1, "w", closefd=False)
    out = sys.stdout = io.TextIOWrapper(
        raw if before.write_through else io.BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    try:
        yield
    finally:
        with suppress(OSError):
            out.flush()
        if raw.error is not None:
            # Stdout keeps what it could not write, and the flush at the end would fail, too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            _say(raw.error)
            sys.exit(1)


def _say(error: OSError) -> None:
    if error.errno != errno.EPIPE:  # a reader that left, such as `head`, wants no more
        what = f"{error.strerror}; the output so far is incomplete"
        sys.stderr.write(f"dovecote: cannot write the output: {what}\n")


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
