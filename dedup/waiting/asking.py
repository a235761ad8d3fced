"""The statements of a caller that waits, and the errors that it gets."""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dedup.inbox import schema as inbox_schema
from dedup.rules.waiting import LEASE, Sight, Wanted
from outbox.errors import (
    DovecoteError,
    NotAllowed,
    SchemaMissing,
    SharedSession,
    first_line,
)
from outbox.schema.templates import fill
from outbox.writing.statements import Statement

CHANNEL = "dovecote_handled"
LISTEN = Statement(f"LISTEN {CHANNEL}".encode(), [])
UNLISTEN = Statement(f"UNLISTEN {CHANNEL}".encode(), [])

# The codes for a missing function, schema and table.
_MISSING = frozenset({"42883", "3F000", "42P01"})
_NO_RIGHT, _READ_ONLY = "42501", "25006"

_REGISTER = "SELECT {schema}.await_events(%t::text[], %t::text[], %t::bigint)"
_LOOK = (
    "SELECT pg_catalog.textout(pg_catalog.json_build_array("
    "pg_catalog.pg_snapshot_xmin(s)::text::bigint,"
    " pg_catalog.pg_snapshot_xmax(s)::text::bigint, o.nr, o.round,"
    " (extract(epoch FROM o.handled_at) * 1000000)::bigint, o.again)::text)"
    " FROM pg_catalog.pg_current_snapshot() AS s"
    " LEFT JOIN {schema}.outcomes(%t::text[], %t::text[]) AS o ON true"
)


def register(schema: str, events: Sequence[Wanted]) -> Statement:
    """Return the statement that asks the inbox to notify of events."""
    return Statement(_filled(_REGISTER, schema), [*_arrays(events), round(LEASE * 1000)])


def look(schema: str, events: Sequence[Wanted]) -> Statement:
    """Return the statement that asks for what has been handled; its rows are `Sight`s."""
    return Statement(_filled(_LOOK, schema), _arrays(events))


def lines(rows: Iterable[str]) -> list[Sight]:
    """Return the rows of `look`."""
    return [Sight(*json.loads(row)) for row in rows]


def explained(error: BaseException, schema: str, role: str) -> DovecoteError | None:
    """Return the error to raise in place of the server's, or None if there is nothing to add."""
    match getattr(error, "sqlstate", None):
        case state if state in _MISSING:
            return SchemaMissing(
                f"there is no inbox in schema {schema!r} of this database that callers can wait "
                f"for: {inbox_schema.advice(schema)}"
            )
        case state if state == _NO_RIGHT:
            return NotAllowed(f"{first_line(error)}; {inbox_schema.waiting(role, schema)}")
        case state if state == _READ_ONLY:
            return NotAllowed(
                f"{first_line(error)}: a caller registers in the inbox, so it needs a connection "
                "to the primary server that may write; or give poll=SECONDS, which only reads"
            )
    return None


def require_direct(*, direct: bool) -> None:
    """
    Check that notifications come.

    Raises:
        SharedSession: a pooler stands between, and may lose them.
    """
    if direct:
        return
    msg = (
        "a pooler stands between this connection and Postgres, and notifications may be lost "
        "there (such as PgBouncer with pool_mode = transaction): give a connection to Postgres "
        "itself, or poll=SECONDS to look at this interval instead"
    )
    raise SharedSession(msg)


def _arrays(events: Sequence[Wanted]) -> list[object]:
    return [[each.consumer for each in events], [each.id for each in events]]


@lru_cache(maxsize=64)
def _filled(text: str, schema: str) -> bytes:
    return fill(text, schema).encode()
