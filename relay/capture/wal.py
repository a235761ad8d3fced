"""
Read committed events from the write-ahead log, in the order of their commits.

A replication slot holds the log back until we confirm it, and we confirm only what is in
committed progress: whatever happens, the server still has what is not published. What the table
held when the slot was made is published from there first.
"""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from relay.capture.batch import Batch, Row
from relay.capture.catalog import Look, look
from relay.capture.pgoutput import Decoder, read_keepalive
from relay.capture.replication import Stream, Wake
from relay.capture.slot import (
    Beginning,
    fault,
    handed_over,
    progress_fault,
    resume,
)
from relay.capture.table import TableCapture
from relay.errors import Refused
from relay.leaves import TABLES
from relay.lsn import parse_lsn
from relay.postgres import connect
from relay.progress import Cursor, LogPosition, Origin, Place, Progress

_log = logging.getLogger("dovecote.relay")

_KEEPALIVE = ord("k")
# A server that says nothing for so long, although asked, is not called idle.
_PATIENCE = 2.0
# … and after so long it is given up.
_LONGEST_SILENCE = 30.0
_SLICE = 0.2


@dataclass(frozen=True, slots=True)
class Timing:
    """How often to speak with the server, in seconds."""

    lease: float
    """It gives us up when it has not heard us for so long."""
    heartbeat: float
    """Where nothing is published, progress and the slot move on so often."""


class WalCapture:
    """The committed events of one outbox, from a place in the log (or in the table before) on."""

    def __init__(
        self, dsn: str, schema: str, *, batch_rows: int, batch_bytes: int, timing: Timing
    ) -> None:
        """
        Connect, and check that this outbox can be read from the log.

        Raises:
            Refused: it is not written to the log, or the slot is missing, lost or another one.
            SchemaMissing: the outbox is not installed.
        """
        self._dsn, self._schema, self._timing = dsn, schema, timing
        self._batch_rows, self._batch_bytes = batch_rows, batch_bytes
        self._confirmed = 0
        self._durable_at = time.monotonic()
        self._stream: Stream | None = None
        self._decoder: Decoder | None = None
        self._interrupted, self._wake = threading.Event(), Wake()
        self._table = TableCapture(dsn, schema, batch_rows=batch_rows, batch_bytes=batch_bytes)
        try:
            self._look, self._beginning = self._sound()
        except BaseException:
            self.close()
            raise

    def _sound(self) -> tuple[Look, Beginning]:
        with connect(self._dsn, purpose="slot") as conn:
            found = look(conn, self._schema)
        name, database = found.installed.slot, found.installed.database
        wrong = fault(found.slot, name, database, found.beginning)
        if wrong is not None or found.beginning is None:
            raise Refused(str(wrong))
        return found, found.beginning

    def origin(self) -> Origin:
        return self._table.origin()

    def resume(self, progress: Progress | None) -> Place:
        self._look, self._beginning = self._sound()
        if self._look.slot is None:
            msg = "a slot was found sound that is not there"
            raise AssertionError(msg)
        wrong = progress_fault(self._look.slot, self._beginning, progress)
        place = resume(self._beginning, progress)
        if wrong is not None:
            raise Refused(str(wrong))
        if progress is not None and place != progress.cursor:
            _log.warning("going on at %s: the gap from %s was accepted", place, progress.cursor)
        return place

    def batches(self, cursor: Place) -> Iterator[Batch]:
        if isinstance(cursor, Cursor):
            yield from self._from_table(cursor)
            return
        stream, decoder = self._open(cursor)
        whole = False
        try:
            yield from self._arrived(stream, decoder)
            position = decoder.position
            late = time.monotonic() - self._durable_at > self._timing.heartbeat
            stream.report(self._confirmed)
            if late and position.lsn > self._confirmed:
                self._durable_at = time.monotonic()
                yield Batch([], position, 0, keep=True)
            self._hear(stream)
            whole = True
            yield Batch([], position, 0)
        finally:
            if not whole:
                self._hang_up()

    def _from_table(self, cursor: Cursor) -> Iterator[Batch]:
        """Yield what the table held when the slot was made, and then the way into the log."""
        before = self._beginning.before
        if before is None:
            msg = "a table without a snapshot to read it up to"
            raise AssertionError(msg)
        for batch in self._table.up_to(before, cursor):
            yield batch
            cursor = batch.cursor if isinstance(batch.cursor, Cursor) else cursor
        now = parse_lsn(self.origin().lsn)
        since = cursor.until or cursor.since
        _log.info("the table is published up to %s; going on in the log", since)
        yield Batch([], handed_over(self._beginning, since, now), 0, keep=True)

    def _arrived(self, stream: Stream, decoder: Decoder) -> Iterator[Batch]:
        """Yield what has come, in batches that may end within a transaction."""
        rows: list[Row] = []
        size = 0
        take, most, most_bytes = decoder.take, self._batch_rows, self._batch_bytes
        while messages := stream.receive():
            for data in messages:
                if data[0] == _KEEPALIVE:
                    self._kept_alive(stream, decoder, data)
                    continue
                row = take(data)
                if row is not None:
                    rows.append(row)
                    size += len(data)
                    if len(rows) >= most or size >= most_bytes:
                        yield Batch(rows, decoder.position, size)
                        rows, size = [], 0
        if rows:
            yield Batch(rows, decoder.position, size)

    def _kept_alive(self, stream: Stream, decoder: Decoder, data: bytes) -> None:
        end, wants_reply = read_keepalive(data)
        decoder.caught_up(end)
        stream.received(end)
        if wants_reply:
            stream.report(self._confirmed, now=True)

    def _hear(self, stream: Stream) -> None:
        """Wait for a server that ought to say something."""
        while stream.silence() > _PATIENCE and not self._interrupted.is_set():
            if stream.silence() > _LONGEST_SILENCE:
                msg = f"nothing on the replication stream for {stream.silence():.0f} s"
                raise psycopg.OperationalError(msg)
            stream.report(self._confirmed)
            stream.wait(_SLICE, self._wake)
            if stream.has_come():
                return

    def _open(self, position: LogPosition) -> tuple[Stream, Decoder]:
        """Return the stream that stands at `position`; begin one if there is none."""
        if self._stream is not None and self._decoder is not None:
            if self._decoder.position == position:
                return self._stream, self._decoder
            self._hang_up()
        installed = self._look.installed
        self._stream = Stream(self._dsn, timeout=self._timing.lease)
        self._stream.start(installed.slot, installed.publication, position.lsn)
        tables = {(self._schema, table) for table in TABLES}
        self._decoder = Decoder(installed.prefix, tables, position)
        return self._stream, self._decoder

    def _hang_up(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._decoder = None

    def wait(self, seconds: float) -> None:
        if self._stream is not None:
            self._stream.wait(seconds, self._wake)

    def confirm(self, cursor: Place) -> None:
        if isinstance(cursor, LogPosition):
            self._confirmed = max(self._confirmed, cursor.lsn)
            self._durable_at = time.monotonic()

    def stay(self) -> None:
        if self._stream is not None:
            self._stream.report(self._confirmed)

    def interrupt(self) -> None:
        self._interrupted.set()
        self._table.interrupt()
        self._wake.set()

    def close(self) -> None:
        self._hang_up()
        self._table.close()
        self._wake.close()
