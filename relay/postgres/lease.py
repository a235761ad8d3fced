"""
The active role: one relay per outbox, held by a session in Postgres, and free when that ends.

Any role may take an advisory lock, so the role is none: the functions `hold` and `holding` of the
schema say which session has it, and only relays may call them.

The server ends the session when it hears nothing for `idle_session_timeout`. So a relay that is
stopped, cut off or gone gives the role away, whatever its TCP connection looks like. The timeout
runs while the server waits for a message or for the rest of one, but not between the messages of
one request. Therefore each request of this session is a single message, with its parameters
written out. The role alone fences nothing, because the old relay may still be publishing. The
transactional.id does.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import errors, sql

from outbox import schema as outbox_schema
from outbox.errors import first_line
from outbox.schema import holds
from relay.errors import LeaseLost, Refused
from relay.postgres.connect import connect, follow_indexes, instance_of, require_one
from relay.rules.places.instance import Instance

_log = logging.getLogger("dovecote.relay")


# The most standbys of one role that say that they could take it over.
_MOST_CANDIDATES = 16


class Hold(NamedTuple):
    """A thing that one session at a time may hold, or each of several one of."""

    schema: str
    names: tuple[str, ...]


def role_of(schema: str, name: str) -> Hold:
    """Return the active role of an outbox name."""
    return Hold(schema, (f"relay {name}",))


def candidates_of(schema: str, name: str) -> Hold:
    """Return the places of the standbys that could take a role over."""
    return Hold(schema, tuple(f"candidate {n} {name}" for n in range(_MOST_CANDIDATES)))


class Lease:
    """The active role while this process has it; `lost` is set when it no longer does."""

    def __init__(self, conn: psycopg.Connection, timeout: float, number: int = 0) -> None:
        """Keep a role: the one that has this `number` among those asked for."""
        self.number = number
        self.conn, self.lost = conn, threading.Event()
        self._timeout = timeout
        self._heard = time.monotonic()
        self._error: Exception | None = None

    def keep(self, done: threading.Event, beat: Callable[[psycopg.Connection], float]) -> None:
        """
        Call `beat` often enough to keep the session, and earlier if it asks for that (in seconds).

        Runs in a thread of its own.
        """
        pause = longest = self._timeout / 4
        while not done.wait(pause):
            try:
                pause = min(beat(self.conn), longest)
                self._heard = time.monotonic()
            except Exception as error:  # noqa: BLE001  # raised again by `require`
                _log.warning("the active role is given up: %s", first_line(error))
                self._error = error
                self.lost.set()
                return

    def require(self) -> None:
        """
        Check that the role is still ours, as far as we know.

        Raises:
            LeaseLost: it is not.
            Exception: an error of a beat that did not end the session.
        """
        if self._error is not None and not self.conn.closed:
            raise self._error
        # A process that was paused may get here before its keeper notices.
        if self.lost.is_set() or time.monotonic() - self._heard > self._timeout:
            msg = "Postgres ended the session that held the active role"
            raise LeaseLost(msg)

    def ask(self) -> None:
        """
        Ask the server whether the role is still ours.

        Raises:
            LeaseLost: the session that held the role has ended.
        """
        self.require()
        with _asked():
            self.conn.execute("SELECT 1")

    def require_at(self, here: Instance) -> None:
        """
        Check that the session that holds the role still exists, and is at the server `here`.

        After a fence that is a proof: nobody else can have had the role before this moment, and
        any relay that gets it later fences us.

        Raises:
            LeaseLost: the session has ended, or is at another server than the one we read.
        """
        with _asked():
            found = instance_of(self.conn)
        require_one(found, here, "the one that reads")

    @contextmanager
    def undisputed(self) -> Iterator[None]:
        """
        Let a refusal pass only if no other relay can have had the role meanwhile.

        Another relay may have moved progress, the slot and everything else that was looked at, one
        after the other. If they do not fit together then, that is no reason to give up.

        Raises:
            LeaseLost: the session that held the role has ended.
        """
        try:
            yield
        except Refused:
            self.ask()
            raise


@contextmanager
def _asked() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        msg = f"the session that held the active role has ended ({first_line(error)})"
        raise LeaseLost(msg) from error


@contextmanager
def try_acquire(dsn: str, keys: Sequence[Hold], timeout: float) -> Iterator[Lease | None]:
    """Yield a lease of the first role that no other relay has, or None; release it afterwards."""
    with connect(dsn, purpose="lease") as conn:
        # Parse, Bind and Execute would be three messages: a process stopped or cut off after the
        # first one would keep the role for good.
        conn.cursor_factory = psycopg.ClientCursor
        # tcp_user_timeout is for answers on their way to us, since the server does not count such
        # a session as idle.
        conn.execute(
            "SELECT set_config(name, %s, false)"
            " FROM unnest(ARRAY['idle_session_timeout', 'tcp_user_timeout']) AS name",
            [str(int(timeout * 1000))],
        )
        # A session that waits for a standby sends no heartbeats meanwhile. If a failover takes
        # this session's writes back, they are written again.
        conn.execute("SET synchronous_commit = local")
        conn.silence = min(conn.silence, timeout)
        # For the heartbeats, which query the outbox.
        follow_indexes(conn)
        number = next((index for index, key in enumerate(keys) if try_lock(conn, key)), None)
        yield None if number is None else Lease(conn, timeout, number)


def try_lock(conn: psycopg.Connection[Any], wanted: Hold) -> bool:
    """
    Hold one of these for the rest of the session, unless other sessions have all of them.

    Raises:
        SchemaMissing: the outbox is missing, or older than this relay.
    """
    try:
        return any(holds.hold(conn, wanted.schema, name) for name in wanted.names)
    except _OLDER:
        outbox_schema.require(conn, wanted.schema)
        raise


def active(conn: psycopg.Connection[Any], held: Hold) -> str | None:
    """
    Return where a process runs whose session holds one of these, None if there is none.

    Raises:
        SchemaMissing: the outbox is missing, or older than this relay.
    """
    # Not everybody may see the addresses of other roles' sessions.
    query: LiteralString = (
        "SELECT CASE WHEN a.backend_start IS NULL THEN 'an address hidden from this role'"
        " ELSE coalesce(host(client_addr), 'local') END, h.pid FROM {}() AS h"
        " LEFT JOIN pg_stat_activity AS a USING (pid) WHERE h.what = ANY (%s) LIMIT 1"
    )
    asked = sql.SQL(query).format(sql.Identifier(held.schema, "holding"))
    try:
        row = conn.execute(asked, [list(held.names)]).fetchone()
    except _OLDER:
        outbox_schema.require(conn, held.schema)
        raise
    return None if row is None else f"{row[0]} (session {row[1]})"


# An outbox that was never installed, or one without these functions.
_OLDER = (errors.UndefinedFunction, errors.InvalidSchemaName)
