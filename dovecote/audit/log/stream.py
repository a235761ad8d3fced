"""Stream from a replication slot: the copy-both protocol over libpq, which cursors lack."""

import select
import struct
import time
from typing import Any

import psycopg
from psycopg import Connection, errors, pq
from psycopg.generators import execute, fetch
from psycopg.rows import TupleRow

from outbox.postgres.session import conninfo, with_secrets

_STATUS = struct.Struct(">cQQQqB")
_KEEPALIVE = struct.Struct(">QqB")
_DATA_SIZE = 25
"""A letter, two places and a clock come before what the plugin sends."""
_EPOCH_MICROSECONDS = 946_684_800_000_000
_TIMEOUT_SECONDS = 300
"""The server drops a reader that it has not heard for so long."""
_REPORT_SECONDS, _ASK_SECONDS = 10.0, 0.1
_MOST_BYTES = 8_000_000


class NoPublication(psycopg.OperationalError):
    """The server lacks the publication, and so cannot read its log on."""


class LogStream:
    """One reading of a slot, by one thread."""

    def __init__(self, dsn: str, slot: str, publication: str, lsn: int) -> None:
        """
        Begin after `lsn`.

        Raises:
            psycopg.Error: the server refuses; a slot in use is an OperationalError.
        """
        self._conn = with_secrets(dsn, _connect)
        self._pgconn: Any = self._conn.pgconn
        self._confirmed = self._reported = 0
        self._reported_at = self._asked_at = 0.0
        try:
            options = (
                f"proto_version '1', publication_names '\"{publication}\"',"
                " messages 'true', binary 'true'"
            )
            query = f'START_REPLICATION SLOT "{slot}" LOGICAL {text_of(lsn)} ({options})'
            self._pgconn.send_query(query.encode())
            (result, *_) = self._conn.wait(execute(self._pgconn))
            if result.status != pq.ExecStatus.COPY_BOTH:
                raise errors.error_from_result(result)  # noqa: TRY301  # the connection is closed
            self._pgconn.nonblocking = 1
        except BaseException:
            self._conn.close()
            raise

    def receive(self, seconds: float) -> list[bytes]:
        """
        Return messages that have come, or come within `seconds`, each with its letter.

        Raises:
            NoPublication: others have dropped it.
            psycopg.Error: the server ended the stream.
        """
        found: list[bytes] = []
        left = _MOST_BYTES
        while left > 0:
            size, data = self._pgconn.get_copy_data(1)
            if size > 0:
                found.append(bytes(data))
                left -= size
            elif size < 0:
                raise self._ended()
            elif found or not _readable(self._pgconn.socket, seconds):
                break
            else:
                self._pgconn.consume_input()
                seconds = 0.0
        return found

    def report(self, confirmed: int, *, ask: bool = False) -> None:
        """Say, if it is due, what the server may forget; `ask` it how far it has come."""
        now = time.monotonic()
        self._confirmed = max(self._confirmed, confirmed)
        ask = ask and now - self._asked_at > _ASK_SECONDS
        moved = self._confirmed > self._reported
        if not (ask or moved or now - self._reported_at > _REPORT_SECONDS):
            return
        clock = time.time_ns() // 1000 - _EPOCH_MICROSECONDS
        at = self._confirmed
        self._pgconn.put_copy_data(_STATUS.pack(b"r", at, at, at, clock, ask))
        self._pgconn.flush()
        self._reported, self._reported_at = at, now
        if ask:
            self._asked_at = now

    def close(self) -> None:
        self._conn.close()

    def _ended(self) -> psycopg.Error:
        result = self._conn.wait(fetch(self._pgconn))
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            error = errors.error_from_result(result)
            return (
                NoPublication(str(error)) if isinstance(error, errors.UndefinedObject) else error
            )
        return psycopg.OperationalError("the server ended the replication stream")


def kept_alive(data: bytes) -> int | None:
    """Return up to where the server has sent all, if a message says only that."""
    return _KEEPALIVE.unpack_from(data, 1)[0] if data[:1] == b"k" else None


def content(data: bytes) -> bytes:
    """Return what the plugin has sent in a message."""
    return data[_DATA_SIZE:]


def text_of(lsn: int) -> str:
    """Return a place in the log as Postgres writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _connect(text: str) -> Connection[TupleRow]:
    ours: dict[str, int | str] = {
        "replication": "database",
        "options": f"-c wal_sender_timeout={_TIMEOUT_SECONDS * 1000}",
        "connect_timeout": 10,
    }
    return Connection[TupleRow].connect(
        conninfo(text, name="dovecote-audit", ours=ours), autocommit=True
    )


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
