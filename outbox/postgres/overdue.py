"""
Connections of psycopg on which no statement waits for ever for a silent server.

A load balancer may go on acknowledging data for a server that is gone. TCP and all of its timers
then see a healthy connection; only the missing answer shows the failure.
"""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg.abc import AdaptContext, PQGen
from psycopg.rows import TupleRow
from psycopg.waiting import Ready

from outbox.postgres.session import connect_as, conninfo, with_secrets, with_secrets_async

T = TypeVar("T")

# By default, libpq waits for two minutes and TCP for a quarter of an hour.
NOTICE: Mapping[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""How soon to notice a server that is gone, as libpq parameters."""


class Overdue(psycopg.OperationalError):
    """The server has been silent for too long; the connection is closed."""


def cut(conn: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    """End all waiting on a connection, from any thread, even if nothing comes through it."""
    with (
        suppress(OSError, psycopg.Error),  # it has ended already
        socket.socket(fileno=os.dup(conn.fileno())) as end,
    ):
        end.shutdown(socket.SHUT_RDWR)


class Connection(psycopg.Connection[TupleRow]):
    """Closes itself if the server is silent within a statement for `patience` seconds."""

    patience = 30.0

    @classmethod
    def open(cls, dsn: str, *, patience: float, context: AdaptContext | None = None) -> Self:
        """Return an autocommit connection; timeouts in `dsn` take precedence."""
        conn = with_secrets(
            dsn,
            lambda text: cls.connect(
                conninfo(text, ours=NOTICE), autocommit=True, context=context
            ),
        )
        conn.patience = patience
        return conn

    @classmethod
    def own(cls, dsn: str, *, patience: float, notice: Mapping[str, int] = NOTICE) -> Self:
        """
        Return a connection with the settings that `outbox.postgres.session` makes sure of.

        Raises:
            SharedSession: a pooler shares the session with other clients.
        """
        conn = connect_as(cls, dsn, ours=notice)
        conn.patience = patience
        return conn

    def wait(self, gen: PQGen[T], *how: float | None, **named: float | None) -> T:
        """
        Wait as psycopg does, but at most `patience` seconds for the server to send something.
        """
        try:
            return super().wait(_bounded(gen, self.patience), *how, **named)  # type: ignore[arg-type]  # whatever psycopg asks
        except Overdue:
            cut(self)
            self.pgconn.finish()
            raise


class AsyncConnection(psycopg.AsyncConnection[TupleRow]):
    """As `Connection`, for asyncio."""

    patience = 30.0

    @classmethod
    async def open(cls, dsn: str, *, patience: float) -> Self:
        """Return an autocommit connection; timeouts in `dsn` take precedence."""
        conn = await with_secrets_async(
            dsn, lambda text: cls.connect(conninfo(text, ours=NOTICE), autocommit=True)
        )
        conn.patience = patience
        return conn

    async def wait(self, gen: PQGen[T], *how: float | None, **named: float | None) -> T:
        """As `Connection.wait`."""
        try:
            return await super().wait(_bounded(gen, self.patience), *how, **named)  # type: ignore[arg-type]  # whatever psycopg asks
        except Overdue:
            cut(self)
            self.pgconn.finish()
            raise


def _bounded(gen: PQGen[T], patience: float) -> PQGen[T]:
    """
    Run `gen`, and raise once nothing has come or gone for `patience` seconds.

    While the socket is not ready, psycopg resumes the generator ten times a second, in order to
    hear signals. So this needs no thread and no timer, and nothing that a fork could lose.
    """
    try:
        wanted = next(gen)
        since = time.monotonic()
        while True:
            ready = yield wanted
            if ready == Ready.NONE:
                if time.monotonic() - since > patience:
                    msg = f"the server has said nothing for {patience:g} s: connection closed"
                    raise Overdue(msg)
                gen.send(ready)
            else:
                wanted = gen.send(ready)
                since = time.monotonic()
    except StopIteration as done:
        result: T = done.value
        return result
