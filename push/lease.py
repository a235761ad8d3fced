"""Let one process at a time read partitions that a group does not share out."""

import logging
import threading
from collections.abc import Callable

import psycopg

_log = logging.getLogger("dovecote.push")

_LOOK_SECONDS = 1.0
_TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


class Lease:
    """
    A lock of Postgres, held by a connection: with the connection it is gone.

    Whoever is to have the partitions next waits here until who had them has drained them.
    """

    def __init__(self, dsn: str, name: str) -> None:
        self._dsn, self._name = dsn, f"dovecote.push.lease/{name}"
        self._ends = threading.Event()
        self._conn: psycopg.Connection | None = None
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
            self._conn = psycopg.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=10,
                keepalives_idle=5,
                tcp_user_timeout=10_000,
            )
        row = self._conn.execute(_TAKE, [self._name]).fetchone()
        return row is not None and bool(row[0])

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
