"""Let one process at a time do work that Kafka does not share out, held in Postgres."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import psycopg

from dovecote.push.errors import Conflict, away
from outbox.errors import first_line
from outbox.postgres.overdue import Connection
from outbox.schema import holds

_log = logging.getLogger("dovecote.push")

_LOOK_SECONDS = 1.0
# A holder that hears nothing from the server considers the lease lost within this.
_NOTICE = {"connect_timeout": 10, "keepalives_idle": 5, "tcp_user_timeout": 10_000}
_PATIENCE = 10.0
# A wait that is longer is said, with who is waited for.
_LONG_SECONDS = 10.0


@contextmanager
def alone(dsn: str, schema: str, subscription: str, *, seconds: float) -> Iterator[None]:
    """
    Keep everybody from reading a subscription's explicit partitions during the `with` block.

    Raises:
        Conflict: somebody still reads them after `seconds`.
    """
    lease = Lease(dsn, schema, subscription)
    timer = threading.Timer(seconds, lease.give_up)
    timer.start()
    try:
        is_ours = lease.take(_keep_on)
    finally:
        timer.cancel()
    if not is_ours:
        msg = f"{subscription!r} is still being read after {seconds:.0f} s: try again"
        raise Conflict(msg)
    with closing(lease):
        yield


@contextmanager
def at_once(dsn: str, schema: str, what: str, otherwise: str) -> Iterator[None]:
    """
    Keep everybody else from doing the same with `what` during the `with` block.

    Raises:
        Away: Postgres does not answer.
        Conflict: somebody does it already; the message is `otherwise`.
    """
    with ExitStack() as stack:
        try:
            conn = stack.enter_context(closing(_connected(dsn)))
            is_ours = holds.hold(conn, schema, f"at_once {what}")
        except psycopg.OperationalError as error:
            raise away(error) from error
        if not is_ours:
            raise Conflict(otherwise)
        yield


def _connected(dsn: str) -> Connection:
    return Connection.own(dsn, patience=_PATIENCE, notice=_NOTICE)


def _keep_on() -> None:
    """
    Ignore the loss: the work is done in a moment, and another process would have to begin first.
    """


class Lease:
    """
    A thing that one connection holds in Postgres: it ends with the connection.

    The next holder of the partitions waits here until the last one has drained them.
    """

    def __init__(self, dsn: str, schema: str, subscription: str) -> None:
        self._dsn, self._schema, self._name = dsn, schema, f"lease {subscription}"
        self._ends = threading.Event()
        self._decides = threading.Lock()
        self._say_at = math.inf
        self._conn: Connection | None = None
        self._watching: threading.Thread | None = None

    def take(self, lost: Callable[[], object]) -> bool:
        """
        Wait until nobody else has it; False: `give_up` came first.

        `lost` is called once it is no longer certain that nobody else has it.
        """
        self._say_at = time.monotonic() + _LONG_SECONDS
        while not self._ends.is_set():
            try:
                if self._taken() and self._begins(lost):
                    return True
            except psycopg.OperationalError as error:
                _log.warning("%s cannot be started yet: %s", self._name, first_line(error))
                self._close()
            self._ends.wait(_LOOK_SECONDS)
        self._close()
        return False

    def give_up(self) -> None:
        """Stop waiting for it; one that is taken already is kept."""
        with self._decides:
            if self._watching is None:
                self._ends.set()

    def close(self) -> None:
        """Release it to others."""
        self._ends.set()
        if self._watching is not None:
            self._watching.join()

    def _begins(self, lost: Callable[[], object]) -> bool:
        """Watch the connection from now on, unless `give_up` came first."""
        with self._decides:
            if self._ends.is_set():
                return False
            self._watching = threading.Thread(
                target=self._watch, args=(lost,), name="lease", daemon=True
            )
            self._watching.start()
            return True

    def _taken(self) -> bool:
        if self._conn is None:
            self._conn = _connected(self._dsn)
        if holds.hold(self._conn, self._schema, self._name):
            return True
        if time.monotonic() > self._say_at:
            self._say_at = math.inf
            holder = holds.held_by(self._conn, self._schema, self._name)
            _log.warning("%s waits to be free: %s", self._name, holder or "it is being taken")
        return False

    def _watch(self, lost: Callable[[], object]) -> None:
        try:
            while not self._ends.wait(_LOOK_SECONDS):
                if self._conn is not None:
                    self._conn.execute("SELECT 1")
        except psycopg.Error as error:
            _log.warning(
                "%s may belong to another process by now: %s", self._name, first_line(error)
            )
            lost()
        finally:
            self._close()

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
