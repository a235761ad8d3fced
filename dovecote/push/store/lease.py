"""Let one process at a time do what Kafka does not share out: locks of Postgres."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import psycopg

from dovecote.push.errors import Away, Conflict
from outbox.postgres.overdue import Connection

_log = logging.getLogger("dovecote.push")

_LOOK_SECONDS = 1.0
# Whoever has a lease and hears nothing of the server takes it for lost within this.
_NOTICE = {"connect_timeout": 10, "keepalives_idle": 5, "tcp_user_timeout": 10_000}
_PATIENCE = 10.0
_TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


@contextmanager
def alone(dsn: str, schema: str, subscription: str, *, seconds: float) -> Iterator[None]:
    """
    Have nobody read the explicit partitions of a subscription while the body of `with` runs.

    Raises:
        Conflict: somebody still reads it, after so long.
    """
    lease = Lease(dsn, schema, subscription)
    timer = threading.Timer(seconds, lease.give_up)
    timer.start()
    try:
        is_ours = lease.take(_keep_on)
    finally:
        timer.cancel()
    if not is_ours:
        msg = f"{subscription!r} is still being read after {seconds:.0f} s: ask again"
        raise Conflict(msg)
    with closing(lease):
        yield


@contextmanager
def at_once(dsn: str, schema: str, what: str, otherwise: str) -> Iterator[None]:
    """
    Have nobody else do the same with `what` while the body of `with` runs.

    Raises:
        Away: Postgres cannot be asked.
        Conflict: somebody does; `otherwise` says so.
    """
    with ExitStack() as stack:
        try:
            conn = stack.enter_context(closing(_connected(dsn)))
            is_ours = _has(conn, f"dovecote.push.at_once/{schema}/{what}")
        except psycopg.OperationalError as error:
            msg = f"Postgres does not answer: {str(error).strip()}"
            raise Away(msg) from error
        if not is_ours:
            raise Conflict(otherwise)
        yield


def _connected(dsn: str) -> Connection:
    return Connection.own(dsn, patience=_PATIENCE, notice=_NOTICE)


def _has(conn: Connection, name: str) -> bool:
    row = conn.execute(_TAKE, [name]).fetchone()
    return row is not None and bool(row[0])


def _keep_on() -> None:
    """Take no notice: what is begun is done in a moment, and another would have to begin first."""


class Lease:
    """
    A lock of Postgres, held by a connection: with the connection it is gone.

    Whoever is to have the partitions next waits here until who had them has drained them.
    """

    def __init__(self, dsn: str, schema: str, subscription: str) -> None:
        self._dsn, self._name = dsn, f"dovecote.push.lease/{schema}/{subscription}"
        self._ends = threading.Event()
        self._conn: Connection | None = None
        self._watching: threading.Thread | None = None

    def take(self, lost: Callable[[], object]) -> bool:
        """
        Wait until nobody else has it; False: `give_up` came first.

        `lost` is called when it cannot be told any more that nobody else has it.
        """
        while not self._ends.is_set():
            try:
                if self._taken():
                    self._watching = threading.Thread(
                        target=self._watch, args=(lost,), name="lease", daemon=True
                    )
                    self._watching.start()
                    return True
            except psycopg.OperationalError as error:
                _log.warning("%s cannot be begun yet: %s", self._name, str(error).strip())
                self._close()
            self._ends.wait(_LOOK_SECONDS)
        self._close()
        return False

    def give_up(self) -> None:
        """Wait for it no more."""
        self._ends.set()

    def close(self) -> None:
        """Let others have it."""
        self._ends.set()
        if self._watching is not None:
            self._watching.join()

    def _taken(self) -> bool:
        if self._conn is None:
            self._conn = _connected(self._dsn)
        return _has(self._conn, self._name)

    def _watch(self, lost: Callable[[], object]) -> None:
        try:
            while not self._ends.wait(_LOOK_SECONDS):
                if self._conn is not None:
                    self._conn.execute("SELECT 1")
        except psycopg.Error as error:
            _log.warning("%s may be another's by now: %s", self._name, str(error).strip())
            lost()
        finally:
            self._close()

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
