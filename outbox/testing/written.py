"""Read what the open transaction of a real connection has written."""

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal

import psycopg

from outbox import schema as outbox_schema
from outbox.errors import DovecoteError, NotAllowed, SchemaMissing, UnsupportedConnection
from outbox.event import Event
from outbox.postgres.away import causes, sqlstate_of
from outbox.postgres.ours import async_cursor, cursor, tuples
from outbox.schema.templates import fill
from outbox.testing.recording import Recorded
from outbox.testing.rows import event_of, time_of
from outbox.writing.kinds import AsyncConnection, SyncConnection
from outbox.writing.psycopg import require_transaction

# An application may load text as it likes, and cannot do so with cstring.
_QUERY = """
SELECT pg_catalog.textout(pg_catalog.json_build_object(
  'wal', {schema}.writes_to_wal(), 'events', coalesce((
    SELECT pg_catalog.json_agg(pg_catalog.json_build_array(
               topic, pg_catalog.encode(key, 'base64'), pg_catalog.encode(value, 'base64'), type,
               id, source, subject, "time", content_type, header_names,
               (SELECT pg_catalog.array_agg(pg_catalog.encode(each, 'base64') ORDER BY nr)
                  FROM pg_catalog.unnest(header_values) WITH ORDINALITY AS of_event(each, nr))
           ) ORDER BY position)
      FROM {schema}.events WHERE {which}), '[]'))::text)
"""
_WHICH = {"own": "xid = pg_catalog.pg_current_xact_id_if_assigned()", "all": "true"}
Which = Literal["own", "all"]
"""The events of the open transaction, or all that the connection sees."""

_NOT_INSTALLED = {"42P01", "42883", "3F000"}
_INSUFFICIENT_PRIVILEGE = "42501"
_KEY, _VALUE, _ID, _TIME, _COLUMNS = 1, 2, 4, 7, 9


def written(
    conn: SyncConnection, *, schema: str = outbox_schema.DEFAULT_SCHEMA, which: Which = "own"
) -> list[Event]:
    """
    Return the events that the open transaction of `conn` has written so far, in order.

    `conn` is any connection that `write` takes, also one of `recorded()`. `which="all"` returns
    all events that the transaction sees in the outbox, also those of committed transactions.
    A key is text if it can be. A value of JSON is decoded, one of text is text, and any other is
    bytes.

    Raises:
        UnsupportedConnection: `conn` is none of these, or has to be awaited.
        NoTransaction: no transaction is open.
        NotAllowed: the role may not read the outbox; writers need not.
        SchemaMissing: the outbox is not installed in this database.
        DovecoteError: the outbox writes to the log (capture `wal`): nobody reads from there what
            is not committed.
    """
    if (known := _recorded(conn, which)) is not None:
        return known
    with _explained(schema):
        return _events(_ask(conn, schema, which), schema)


async def written_async(
    conn: AsyncConnection, *, schema: str = outbox_schema.DEFAULT_SCHEMA, which: Which = "own"
) -> list[Event]:
    """As `written`, on a connection that has to be awaited."""
    if (known := _recorded(conn, which)) is not None:
        return known
    with _explained(schema):
        return _events(await _ask_async(conn, schema, which), schema)


def _query(schema: str, which: Which) -> str:
    return fill(_QUERY.replace("{which}", _WHICH[which]), schema)


def _recorded(conn: Any, which: Which) -> list[Event] | None:  # noqa: ANN401  # any
    recorder = conn
    if not isinstance(conn, Recorded):
        info = getattr(getattr(conn, "sync_session", conn), "info", None)
        recorder = info.get("dovecote.recorder") if isinstance(info, dict) else None
    if recorder is None:
        return None
    before = recorder.committed if which == "all" else []
    journal = recorder.recording.journal
    return [*before, *(recorder.open if hasattr(recorder, "open") else journal.open)]


def _ask(conn: Any, schema: str, which: Which) -> str:  # noqa: ANN401  # any library's
    query = _query(schema, which)
    if isinstance(conn, psycopg.Connection):
        require_transaction(conn)
        return _first(cursor(conn).execute(query.encode()).fetchone())
    library = _library(conn)
    if library == "sqlalchemy" and not hasattr(conn, "run_sync"):
        return _on_sqlalchemy(conn, schema, which)
    if library == "django" and hasattr(conn, "get_autocommit"):
        conn.ensure_connection()
        with tuples(conn.connection), conn.cursor() as asked:
            asked.execute(query)
            return _first(asked.fetchone())
    raise _unsupported(conn, "written")


async def _ask_async(conn: Any, schema: str, which: Which) -> str:  # noqa: ANN401  # any library's
    query = _query(schema, which)
    if isinstance(conn, psycopg.AsyncConnection):
        require_transaction(conn)
        asked = await async_cursor(conn).execute(query.encode())
        return _first(await asked.fetchone())
    library = _library(conn)
    if library == "sqlalchemy" and hasattr(conn, "run_sync"):
        found: str = await conn.run_sync(_on_sqlalchemy, schema, which)
        return found
    if library == "asyncpg" and hasattr(conn, "fetchval"):
        import_module("outbox.writing.asyncpg").require_transaction(conn)
        return _first([await conn.fetchval(query)])
    raise _unsupported(conn, "written_async")


def _on_sqlalchemy(tx: Any, schema: str, which: Which) -> str:  # noqa: ANN401  # a session or connection
    adapter = import_module("outbox.writing.sqlalchemy")
    conn = adapter.connection_for(tx, schema, "events")
    if conn is None:
        raise _unsupported(tx, "written")
    run = adapter.run_on_psycopg if conn.dialect.driver == "psycopg" else adapter.run
    return _first([run(conn, _query(schema, which), [])])


def _first(row: Any) -> str:  # noqa: ANN401  # a row of any library
    text: str = row[0]
    return text


def _events(text: str, schema: str) -> list[Event]:
    found = json.loads(text)
    if found["wal"]:
        msg = (
            f"the outbox in schema {schema!r} writes to the write-ahead log (capture wal), where "
            "nobody reads what is not committed; test with capture table, as a new outbox has it, "
            "or with outbox.testing.recorded()"
        )
        raise DovecoteError(msg)
    return [_event(row) for row in found["events"]]


def _event(row: list[Any]) -> Event:
    columns, names, values = row[:_COLUMNS], row[_COLUMNS] or [], row[_COLUMNS + 1] or []
    columns[_KEY], columns[_VALUE] = _bytes(columns[_KEY]), _bytes(columns[_VALUE])
    columns[_TIME] = time_of(columns[_TIME])
    return event_of(columns, [*zip(names, map(_bytes, values), strict=True)])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


@contextmanager
def _explained(schema: str) -> Iterator[None]:
    try:
        yield
    except DovecoteError:
        raise
    except Exception as error:
        states = {sqlstate_of(each) for each in causes(error)}
        if states & _NOT_INSTALLED:
            msg = (
                f"the outbox is not installed in schema {schema!r} of this database; "
                f"{outbox_schema.installing(schema)}"
            )
            raise SchemaMissing(msg) from error
        if _INSUFFICIENT_PRIVILEGE in states:
            msg = (
                "the role may not read the outbox, which a writer need not; test with the owner's "
                f"role, or run: GRANT SELECT ON {schema}.events TO …"
            )
            raise NotAllowed(msg) from error
        raise


def _library(conn: object) -> str:
    known = {"sqlalchemy", "django", "asyncpg"}
    roots = (base.__module__.partition(".")[0] for base in conn.__class__.__mro__)
    return next((root for root in roots if root in known), "")


def _unsupported(conn: object, name: str) -> UnsupportedConnection:
    kind = conn.__class__
    other = "written_async(conn)" if name == "written" else "written(conn)"
    return UnsupportedConnection(
        f"{name} cannot read on {kind.__module__}.{kind.__qualname__}; give a connection that "
        f"`write` takes, or use {other}"
    )
