"""
Stream from a replication slot: the copy-both protocol over libpq, which psycopg's cursors lack.

Only `wait` waits here; everything else takes from libpq what has come so far.
"""

import os
import re
import select
import struct
import time
from collections.abc import Mapping

import psycopg
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.generators import execute, fetch

from outbox.errors import first_line
from outbox.secrets import mapped
from relay.errors import Refused
from relay.postgres.answers import Attended
from relay.postgres.connect import connect, instance_of, lacks_replication
from relay.rules.places.instance import Instance
from relay.rules.places.lsn import format_lsn

_STATUS = struct.Struct(">cQQQqB")
# Postgres counts microseconds from 2000.
_EPOCH_MICROSECONDS = 946_684_800_000_000
# The most that `receive` takes at a time.
_MOST_BYTES = 1_000_000
# A server with nothing to send answers at once when it is asked.
_ASK_AFTER = 1.0
# While it decodes a large transaction of others, it says something only after half of its timeout.
# That must be sooner than its silence counts as its end.
_LONGEST_TIMEOUT = 20.0
# The texts of Postgres 16 and newer, and of older ones; libpq passes on no SQLSTATE for it.
_LACKS_REPLICATION = re.compile(
    "permission denied to start WAL sender"
    "|must be superuser or replication role to start walsender"
)
# PgBouncer says it: before 1.23 of `replication`, and later of our timeout.
_NOT_PASSED_ON = re.compile("unsupported startup parameter")
_DIRECTLY = (
    "a pooler is in the way that passes on no replication connection or its settings: to read "
    "the write-ahead log, `dsn` must lead to Postgres itself"
)


class Wake:
    """Ends another thread's wait for a socket."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()  # not pipe2(), which macOS lacks
        for end in (self._read, self._write):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            # The pipe is full, so the waiting thread will wake up.
            return

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until `set` is called."""
        if _readable(seconds, self._read):
            self.clear()

    def clear(self) -> None:
        os.read(self._read, 4096)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def replicating(dsn: str, purpose: str, options: str = "") -> Attended:
    """
    Connect as a reader of the log, which only the server can allow.

    Raises:
        Refused: the role lacks REPLICATION, or a pooler passes on no such connection.
        psycopg.OperationalError: the server is away.
    """

    def changed(text: str) -> str:
        given = str(conninfo_to_dict(text).get("options") or "")
        return make_conninfo(text, replication="database", options=(given + options).strip())

    try:
        # Not with libpq's own connect, which would hold up the whole process until the server
        # answers.
        conn = connect(mapped(dsn, changed), purpose=purpose)
    except psycopg.OperationalError as error:
        if _LACKS_REPLICATION.search(str(error)):
            raise Refused(lacks_replication(_role(error, conninfo_to_dict(dsn)))) from error
        if _NOT_PASSED_ON.search(str(error)):
            where = f"the server behind `dsn` ({first_line(error)})"
            raise _not_passed_on(where) from error
        raise
    try:
        conn.execute("IDENTIFY_SYSTEM")
    except errors.SyntaxError as error:
        where = f"{conn.info.host}:{conn.info.port}"
        conn.close()
        raise _not_passed_on(where) from error
    return conn


def _not_passed_on(where: str) -> Refused:
    msg = f"{where} opens no replication connection; {_DIRECTLY}"
    return Refused(msg)


def require_replication(dsn: str) -> None:
    """
    Check that the server lets the role read the log, or has no room to say so.

    Raises:
        Refused: it does not.
        psycopg.OperationalError: the server is away.
    """
    try:
        replicating(dsn, "doctor").close()
    except psycopg.OperationalError as error:
        if "max_wal_senders" not in str(error):
            raise


class Stream:
    """One START_REPLICATION: messages come in, status goes out. Used by one thread."""

    def __init__(self, dsn: str, *, timeout: float) -> None:
        """
        Connect.

        The server drops the connection if it hears nothing for `timeout` seconds, or for 20.

        Raises:
            Refused: the role lacks REPLICATION.
            psycopg.OperationalError: the server is away.
        """
        self._timeout = min(timeout, _LONGEST_TIMEOUT)
        options = f" -c wal_sender_timeout={int(self._timeout * 1000)}"
        self._conn = replicating(dsn, "wal", options)
        self._pgconn = self._conn.pgconn
        self._heard = self._reported = time.monotonic()
        self._received = self._confirmed = self._reported_confirmed = 0
        self._asked = False
        self._failure: psycopg.Error | None = None

    def instance(self) -> Instance:
        """Return which server this is, before it streams."""
        return instance_of(self._conn)

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """
        Start streaming after `lsn`.

        Raises:
            psycopg.Error: the server refuses; a slot in use is an OperationalError.
        """
        options = (
            f"proto_version '1', publication_names '{_quoted(publication)}',"
            " messages 'true', binary 'true'"
        )
        query = f'START_REPLICATION SLOT "{slot}" LOGICAL {format_lsn(lsn)} ({options})'
        self._pgconn.send_query(query.encode())
        (result, *_) = self._conn.wait(execute(self._pgconn))
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise errors.error_from_result(result)
        self._pgconn.nonblocking = 1
        self._received = lsn

    def receive(self) -> list[bytes]:
        """
        Return the messages that have come so far, which may be none.

        Raises:
            psycopg.Error: the server ended the stream, and all that it had sent was returned.
        """
        if self._failure is not None:
            raise self._failure
        found: list[bytes] = []
        take, pgconn = self._pgconn.get_copy_data, self._pgconn
        left = _MOST_BYTES
        while left > 0:
            size, data = take(1)
            if size > 0:
                found.append(bytes(data))
                left -= size
            elif size == 0:
                if found or not self.has_come():
                    break
                pgconn.consume_input()
            elif found:
                self._failure = self._ended()
                break
            else:
                raise self._ended()
        if found:
            self._heard, self._asked = time.monotonic(), False
        return found

    def received(self, lsn: int) -> None:
        """Remember how far the server has sent."""
        self._received = max(self._received, lsn)

    def report(self, confirmed: int, *, now: bool = False) -> None:
        """Report to the server what it may forget, if that has changed or a report is due."""
        self._confirmed = max(self._confirmed, confirmed)
        clock = time.monotonic()
        ask = not self._asked and clock - self._heard > _ASK_AFTER
        due = clock - self._reported > self._timeout / 4
        if now or ask or due or self._confirmed > self._reported_confirmed:
            self._send_report(ask=ask)
            self._reported = clock

    def silence(self) -> float:
        """Return for how many seconds the server has sent nothing."""
        return time.monotonic() - self._heard

    def has_come(self) -> bool:
        """Return whether the server has sent something."""
        return bool(_readable(0, self._pgconn.socket))

    def wait(self, seconds: float, wake: "Wake") -> None:
        """Wait for the server, or for `wake`."""
        if wake.fileno() in _readable(seconds, self._pgconn.socket, wake.fileno()):
            wake.clear()

    def close(self) -> None:
        self._conn.close()

    def _send_report(self, *, ask: bool) -> None:
        now = time.time_ns() // 1000 - _EPOCH_MICROSECONDS
        received = max(self._received, self._confirmed)
        self._pgconn.put_copy_data(
            _STATUS.pack(b"r", received, self._confirmed, self._confirmed, now, ask)
        )
        # Bytes that do not go out now go out with the next report.
        self._pgconn.flush()
        self._asked = self._asked or ask
        self._reported_confirmed = self._confirmed

    def _ended(self) -> psycopg.Error:
        result = self._conn.wait(fetch(self._pgconn))
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return errors.error_from_result(result)
        return psycopg.OperationalError("the server ended the replication stream")


def _role(error: psycopg.OperationalError, given: Mapping[str, object]) -> str:
    return error.pgconn.user.decode() if error.pgconn else str(given.get("user"))


def _readable(seconds: float, *descriptors: int) -> list[int]:
    """Return the descriptors that are readable, after `seconds` at most."""
    # Not select(), which takes no descriptors from 1024 on.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(1000 * seconds)]


def _quoted(name: str) -> str:
    # Quoted twice: it is an identifier within a literal.
    identifier = '"' + name.replace('"', '""') + '"'
    return identifier.replace("'", "''")
