"""Transactions on the tables of `dovecote push`, with an error that explains a failed one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, sql

from dedup.inbox.connections import PATIENCE, Connections
from dovecote.push.errors import RequestRefused, away
from dovecote.push.store.schema import DEFAULT_SCHEMA, place, require
from outbox.errors import NotAllowed
from outbox.postgres.away import is_at_fault, is_outage
from outbox.postgres.session import connect, hides_rows, is_direct
from outbox.schema.belongings import showing


class Tables:
    """The tables of one schema; may be used from any thread."""

    def __init__(self, dsn: str, schema: str = DEFAULT_SCHEMA) -> None:
        self.dsn, self.schema = dsn, schema
        self._connections = Connections(dsn, patience=PATIENCE, ours=True)

    def require(self) -> None:
        """
        Check that they are installed; as `dovecote.push.store.schema.require`.

        Raises:
            SharedSession: `dsn` leads to a pooler, where locks would stay behind in shared
                sessions.
        """
        with self.begin() as conn:
            require(conn, self.schema)
            if not is_direct(conn):
                connect(self.dsn).close()

    def execute(self, conn: Connection, query: str, *values: object) -> psycopg.Cursor[Any]:
        """Run a query in which `{}` stands for the schema."""
        schema = sql.Identifier(self.schema).as_string()
        return conn.execute(query.replace("{}", schema).encode(), values)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """
        Yield a connection in a transaction, which commits at the end.

        Raises:
            Away: Postgres does not answer, or takes no writes for now.
            NotAllowed: the role lacks a right for it.
            RequestRefused: Postgres cannot store the given values.
        """
        try:
            with self._connections.begin() as conn:
                yield conn
        except psycopg.errors.InsufficientPrivilege as error:
            advice = (
                "as the schema's owner, run "
                f"`dovecote init push{place(self.schema)} --push-role …` with this role"
            )
            if hides_rows(error):
                advice = showing(self.schema)
            msg = f"Postgres: {error.diag.message_primary}; {advice}"
            raise NotAllowed(msg) from error
        except psycopg.Error as error:
            if is_at_fault(error):
                what = error.diag.message_primary or str(error)
                msg = f"Postgres cannot keep this: {what}"
                raise RequestRefused(msg) from error
            if not is_outage(error):
                raise
            raise away(error) from error

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()
