"""Errors of requests to `dovecote push serve`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outbox.errors import DovecoteError, first_line

if TYPE_CHECKING:
    import psycopg


class NoSuchSubscription(DovecoteError):
    """There is no subscription with that name."""


class Conflict(DovecoteError):
    """The request conflicts with the present state."""


class TooMany(DovecoteError):
    """The owner has as many subscriptions as it may have."""


class RequestRefused(DovecoteError):
    """These settings or this broker do not allow the request."""


class NotPermitted(DovecoteError):
    """The caller's token does not allow the request."""

    def __init__(self, message: str, problems: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = problems
        """Pairs of a field's path and words."""


class Busy(DovecoteError):
    """The caller's token has too many requests under way."""


class Away(DovecoteError):
    """The database or a broker does not answer: the same request may succeed later."""


def away(error: "psycopg.Error") -> Away:
    """Return what an error of the driver says, in one line."""
    # A connection that failed has no SQLSTATE; an error that has one came from a server.
    advice = "" if error.sqlstate else "; is `dsn` right?"
    return Away(f"Postgres does not answer: {first_line(error)}{advice}")
