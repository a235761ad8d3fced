"""
Name every way out of a handler that is neither a result nor an exception.

A `BaseException` passes through code that waits for an `Exception`, and a thread or an event loop
may drop it without a word. So it is exchanged where the handler is called.
"""

from dedup.rules.policies import blame
from dedup.rules.policies.wording import plain
from outbox.errors import DovecoteError


class HandlerLeft(Exception):
    """
    Stands for a `BaseException` that a handler raised: a failed attempt like any other.

    Such are `asyncio.CancelledError`, `GeneratorExit`, and timeouts of eventlet.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class HandlerExited(DovecoteError):
    """A handler asked to end the process, or cannot go on; the consumer ends."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status
        """The exit status for the process; never 0, because the consumer was not told to stop."""


class Exits(BaseException):
    """
    Carries a reason to end out of a handler, past everything that treats exceptions as results.

    It is no `SystemExit`: event loops and threads have rules of their own for that.
    """

    def __init__(self, reason: DovecoteError) -> None:
        super().__init__(reason)
        self.reason = reason


def leave(error: BaseException) -> None:
    """
    Raise what stands for a `BaseException` that came out of a handler; return if it may pass.

    Raises:
        HandlerLeft: it is a failed attempt.
        Exits: it ends the process.
    """
    if isinstance(error, Exception | Exits):
        return
    if not isinstance(error, SystemExit | KeyboardInterrupt):
        raise HandlerLeft(error) from error
    where = "" if (place := blame.place(error)) is None else f" ({place})"
    if isinstance(error, KeyboardInterrupt):
        what, status = f"raised KeyboardInterrupt{where}", 130
    else:
        what, status = f"called sys.exit({_shown(error.code)}){where}", _status(error.code)
    raise Exits(
        HandlerExited(
            f"the handler {what}, so this process ends; the record is not completed and comes "
            "again; return Dead for a record that is to be given up",
            status,
        )
    ) from error


def reason_of(error: BaseException) -> Exception:
    """Return the exception that says why a process ends, for whatever made it end."""
    if isinstance(error, Exception):
        return error
    if not isinstance(error, Exits):
        text = f"{type(error).__name__}: {plain(error)}"
        return HandlerExited(f"{text} ended the thread that serves records; they come again")
    return error.reason


def _shown(code: object) -> str:
    return "" if code is None else plain(code)


def _status(code: object) -> int:
    return code if isinstance(code, int) and 0 < code < 256 else 1  # noqa: PLR2004  # a byte
