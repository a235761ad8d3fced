"""
Wait for Postgres's answers, but only as long as the server is working on them.

After a failover a balancer may keep a socket open and acknowledge what is sent there for ever;
neither TCP nor keepalives notice. So each wait of a session listens for bytes. After a silence we
ask the server over another connection whether it is working on the answer. If it is not, or cannot
be asked, the socket is closed.
"""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from outbox.postgres.overdue import cut
from outbox.postgres.session import SESSION, with_secrets

T = TypeVar("T")

SILENCE = 15.0
"""Seconds of silence after which we check on the server."""
_TO_CONNECT = 5
_TO_REPORT = 5.0


class Attended(psycopg.Connection[TupleRow]):
    """A connection none of whose waits is for ever; used by `relay.postgres.connect.connect`."""

    silence = SILENCE
    _where: tuple[str, int] | None = None
    """Where to ask about an overdue answer, and about which session; None: nowhere."""

    def attend(self, conninfo: str) -> None:
        """From now on, ask at `conninfo` about overdue answers."""
        # The number that libpq knows may be one that a pooler made up.
        row = self.execute(SESSION.encode()).fetchone()
        self._where = None if row is None else (conninfo, int(row[0]))

    def wait(self, gen: PQGen[T], *args: Any, **given: Any) -> T:  # noqa: ANN401  # as they are
        """
        Consume a generator of psycopg, like the method that this one overrides.

        Raises:
            psycopg.OperationalError: the server was silent for too long; the socket is closed.
        """
        return super().wait(self._attended(gen), *args, **given)

    def _attended(self, gen: PQGen[T]) -> PQGen[T]:
        return _passed(gen, self)

    def require_at_work(self, waited: float) -> None:
        """
        Check that the server is working on what it was asked.

        Raises:
            psycopg.OperationalError: it is not, as far as we can find out.
        """
        if self._where is None or not is_at_work(*self._where):
            self._hang_up()
            msg = f"no answer for {waited:.0f} s, and the server is not at work on one"
            raise psycopg.OperationalError(msg)

    def _hang_up(self) -> None:
        """Close the socket without saying goodbye: the peer may no longer read."""
        cut(self)
        self.close()


def _passed(gen: PQGen[T], conn: Attended) -> Generator[Any, Any, T]:
    """Pass psycopg's waits on to its loop, and what has come back to psycopg."""
    silent_since = 0.0
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                silent_since = 0.0
            elif not silent_since:
                silent_since = time.monotonic()
            elif (waited := time.monotonic() - silent_since) > conn.silence:
                conn.require_at_work(waited)
                silent_since = 0.0
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


def is_at_work(conninfo: str, pid: int) -> bool:
    """Return whether the server works for session `pid` and is not waiting for its client."""
    query = (
        "SELECT FROM pg_stat_activity WHERE state = 'active'"
        " AND wait_event_type IS DISTINCT FROM 'Client' AND pid = %s"
        " AND application_name = current_setting('application_name')"
    )

    def made(text: str) -> Attended:
        given = make_conninfo(text, connect_timeout=_TO_CONNECT, replication="false")
        return Attended.connect(given, autocommit=True)

    try:
        with with_secrets(conninfo, made) as conn:
            conn.silence = _TO_REPORT
            return conn.execute(query, [pid]).fetchone() is not None
    except psycopg.Error:
        return False
