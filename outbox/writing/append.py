"""The request that an adapter executes: append these events."""

from collections.abc import Sequence
from typing import NamedTuple

from outbox.errors import DovecoteError, NotAllowed, NoTransaction, SchemaMissing
from outbox.event import Event, Limits
from outbox.postgres.away import causes, is_at_fault, sqlstate_of
from outbox.tracing import gate
from outbox.writing import statements

# The function does not exist; the schema does not exist.
_NOT_INSTALLED = frozenset({"42883", "3F000"})
_INSUFFICIENT_PRIVILEGE = "42501"
# In the message of `require_topics`, of the schema.
_RESTRICTED = "may not write to topic"


class Append(NamedTuple):
    """The events of one call, and how they are to be written."""

    events: Sequence[Event]
    schema: str
    limits: Limits

    def statement(self) -> statements.Statement:
        """
        Return the statement to execute.

        Raises:
            InvalidEvent: an event could never be published.
        """
        return statements.append(
            self.events,
            schema=self.schema,
            limits=self.limits,
            carried=gate.carried,
        )

    def explained(
        self, error: BaseException | None, *, database: object = None, role: object = None
    ) -> DovecoteError | None:
        """
        Return the error to raise in place of the server's, or None if there is nothing to add.
        """
        # An error needs them, and no import of `outbox`.
        from outbox import schema as outbox_schema
        from outbox.postgres.session import hides_rows
        from outbox.schema.belongings import showing

        sqlstate = getattr(error, "sqlstate", None)
        if sqlstate in _NOT_INSTALLED and not _within(error):
            where = repr(database) if database else "this database"
            return SchemaMissing(
                f"the outbox is not installed in schema {self.schema!r} of {where}; "
                f"{outbox_schema.installing(self.schema)}"
            )
        if sqlstate == _INSUFFICIENT_PRIVILEGE:
            said = str(error).partition("\n")[0].rpartition(": ")[2]
            more = " --topics …" if _is_restricted(error) else ""
            advice = outbox_schema.advice("writer", str(role or "ROLE"), self.schema, more)
            if hides_rows(error):
                advice = showing(self.schema)
            return NotAllowed(f"{said}; {advice}")
        return None


def is_of_events(error: BaseException) -> bool:
    """Return whether an error may be the fault of one event, so that others could be written."""
    return any(is_at_fault(each) or _is_restricted(each) for each in causes(error))


def autocommit(remedy: str) -> NoTransaction:
    """Return the error for a connection that would commit each statement by itself."""
    return NoTransaction(f"connection is in autocommit mode; {remedy}")


def _is_restricted(error: BaseException | None) -> bool:
    return (
        error is not None
        and sqlstate_of(error) == _INSUFFICIENT_PRIVILEGE
        and _RESTRICTED in str(error).partition("\n")[0]
    )


def _within(error: BaseException | None) -> bool:
    """Return whether the error is of a function or trigger that our statement has called."""
    # SQLAlchemy's own error for asyncpg has the driver's as its cause.
    for each in (error, getattr(error, "__cause__", None)):
        diagnosed = getattr(each, "diag", each)
        if isinstance(getattr(diagnosed, "context", None), str):
            return True
    return False
