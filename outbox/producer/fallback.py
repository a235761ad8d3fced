"""
Write a producer's events into the outbox in its own transactions, and ask which have drained.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from outbox.event import Event, Limits
from outbox.postgres import overdue
from outbox.postgres.away import is_outage
from outbox.postgres.ours import ADAPTERS
from outbox.postgres.session import conninfo, with_secrets
from outbox.producer.routing import EVERY, Lane
from outbox.writing.append import Append

_NOTICE = {**overdue.NOTICE, "connect_timeout": 5, "tcp_user_timeout": 10_000}

# Lasts until the end of the statement. If row-level security hid rows, they would seem drained.
_SHOWING_ALL = sql.SQL("pg_catalog.set_config('row_security', 'off', true)")


class Fallback:
    """One connection, made when it is needed and again after it is lost; for one thread."""

    def __init__(self, dsn: str, schema: str, limits: Limits) -> None:
        self._dsn = dsn
        self._schema, self._limits = schema, limits
        self._conn: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()

    def write(self, events: Sequence[Event]) -> int:
        """
        Commit events in one transaction, and return its number.

        Raises:
            psycopg.Error, DovecoteError: they are not written, or the outcome is unknown.
        """
        append = Append(events, self._schema, self._limits)
        query, parameters = append.statement()
        # One statement is one transaction, and one round trip.
        query += b", pg_current_xact_id()::text"
        with self._connected() as conn:
            try:
                return int(conn.execute(query, parameters).fetchall()[0][1])
            except psycopg.ProgrammingError as error:
                place = {"database": conn.info.dbname, "role": conn.info.user}
                raise append.explained(error, **place) or error from error

    def token(self) -> int:
        """Return the number of a transaction that was committed just now and wrote nothing."""
        with self._connected() as conn:
            return int(conn.execute("SELECT pg_current_xact_id()::text").fetchall()[0][0])

    def drained(self, asked: Mapping[Lane, int]) -> list[Lane]:
        """Return the lanes that have nothing left in the outbox."""
        query = sql.SQL("SELECT {}(%s::text[]::xid8[], %b::bytea[]) FROM {}").format(
            sql.Identifier(self._schema, "drained"), _SHOWING_ALL
        )
        tokens = [str(token) for token in asked.values()]
        lanes = [None if lane == EVERY else lane for lane in asked]
        with self._connected() as conn:
            answers = conn.execute(query, [tokens, lanes]).fetchall()[0][0]
        return [lane for lane, answer in zip(asked, answers, strict=True) if answer]

    def parked(self, most: int) -> list[Lane]:
        """Return lanes that have a parked event, at most `most` of them."""
        query = sql.SQL("SELECT {}(%s) FROM {}").format(
            sql.Identifier(self._schema, "parked_lanes"), _SHOWING_ALL
        )
        with self._connected() as conn:
            return list(conn.execute(query, [most]).fetchall()[0][0])

    def cut(self) -> None:
        """End the other thread's wait: a server that hangs answers nothing else."""
        with self._lock:
            if self._conn is not None:
                overdue.cut(self._conn)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._conn is not None:
                self._conn.close()
            self._conn = None

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        if self._conn is None:
            # This also works through a pooler: nothing is set here that would stay with its
            # session.
            conn = with_secrets(self._dsn, _connect)
            with self._lock:
                self._conn = conn
        try:
            yield self._conn
        except psycopg.Error as error:
            # A new connection may lead to a server that takes writes.
            if is_outage(error):
                self.close()
            raise


def _connect(text: str) -> psycopg.Connection[Any]:
    dsn = conninfo(text, ours={"application_name": "dovecote producer", **_NOTICE})
    return psycopg.connect(dsn, autocommit=True, prepare_threshold=None, context=ADAPTERS)
