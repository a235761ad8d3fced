"""
Read committed events from the write-ahead log, in commit order.

A replication slot holds the log back until we confirm it, and we confirm only what committed
progress has. So whatever happens, the server still has all that is unpublished.

A commit that waits for a synchronous standby is in the log before anybody sees it. With such
standbys, events are held until a snapshot sees them, and nothing more is taken meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg

from outbox.errors import first_line
from outbox.schema import about
from outbox.schema import capture as outbox_capture
from outbox.schema.slots import slot_name, unreadable
from relay.decoding.pgoutput import NOWHERE, Decoder, read_begin, read_keepalive
from relay.errors import Refused
from relay.postgres.capture.replication import Stream, Wake
from relay.postgres.connect import connect, instance_of, require_one
from relay.rules.batch import FIRST_ROWS, Batch
from relay.rules.places.instance import Instance
from relay.rules.places.lsn import format_lsn
from relay.rules.places.progress import ACCEPT, LogPosition, Newest
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import Row
from relay.rules.server.leaves import TABLES
from relay.rules.sharding import Shard

_log = logging.getLogger("dovecote.relay")

_KEEPALIVE = ord("k")
# A server that stays silent for this long, although asked, does not count as idle.
_PATIENCE = 2.0
# A server that stays silent for this long is given up.
_LONGEST_SILENCE = 30.0
_SLICE = 0.2
# A round ends after this long, even if writers never pause.
_LONGEST_ROUND = 1.0
# The first and the longest pause between two looks at whether held events are visible.
_FIRST_REST, _LONGEST_REST = 0.0005, 0.05


@dataclass(frozen=True, slots=True)
class Timing:
    """How often to talk to the server, in seconds."""

    lease: float
    """The server drops our connection if it has not heard from us for this long."""
    heartbeat: float
    """While nothing is published, progress and the slot move on this often."""


class WalCapture:
    """
    The committed events of one shard of an outbox, from a place in the log on, up to `end`.

    One thread reads it.
    """

    def __init__(
        self,
        dsn: str,
        schema: str,
        shard: Shard | None = None,
        *,
        batch_rows: int,
        batch_bytes: int,
        timing: Timing,
        end: int | None = None,
        at: Instance | None = None,
    ) -> None:
        """
        Do not connect yet. Connect later only to the server `at`, from which the table is read.
        """
        self._at = at
        self._dsn, self._schema, self._shard, self._timing = dsn, schema, shard, timing
        self._end = NOWHERE if end is None else end
        self._batch_rows, self._batch_bytes = batch_rows, batch_bytes
        self._durable = self._confirmed = 0
        self._durable_at = time.monotonic()
        self._stream: Stream | None = None
        self._decoder: Decoder | None = None
        self._refused: Refused | None = None
        """Why the server cannot read its log on."""
        self._early: list[bytes] = []
        """Messages that have come and were not looked at yet."""
        self._tracked: set[int] | None = None
        self._see: Callable[[], Snapshot] | None = None
        self._replicate: Callable[[], None] | None = None
        self._unseen: set[int] = set()
        """
        Transactions of rows that came and may still be invisible, by the low halves of their ids.
        """
        self._held: list[Batch] = []
        self._given = LogPosition(0)
        """The place before the held batches."""
        self._held_at = self._rest = 0.0
        self._has_warned = False
        self._interrupted, self._wake = threading.Event(), Wake()

    def batches(self, cursor: LogPosition) -> Iterator[Batch]:
        """Yield what is committed and lies after `cursor`; the last batch is empty."""
        stream, decoder = self._open(cursor)
        whole = False
        try:
            self._given = cursor
            for batch in self._visible(stream, decoder):
                yield batch
                if isinstance(batch.cursor, LogPosition):
                    self._given = batch.cursor
            if self._refused is not None:
                raise self._refused
            position = self._given if self._held else decoder.position
            late = time.monotonic() - self._durable_at > self._timing.heartbeat
            stream.report(self._confirmed)
            if late and position.lsn > self._durable:
                self._durable_at = time.monotonic()
                self._make_sure()
                yield Batch([], position, 0, keep=True)
            self._hear(stream)
            whole = True
            yield Batch([], position, 0)
        finally:
            if not whole:
                self.hang_up()

    @property
    def is_between_transactions(self) -> bool:
        """Return whether no transaction is half received, and everything received was yielded."""
        return self._decoder is not None and not (self._decoder.in_transaction or self._held)

    def track(self, xids: set[int] | None) -> None:
        """From now on, add the transactions whose rows come to `xids`."""
        self._tracked = xids
        if self._decoder is not None:
            self._decoder.rows_of = xids

    def hold(
        self, see: Callable[[], Snapshot] | None, replicate: Callable[[], None] | None
    ) -> None:
        """
        From now on, yield only what `see`, called after it came, sees; None: yield everything.

        Before a batch is yielded, `replicate` makes sure that the standbys have all of the log
        before it.
        """
        self._replicate = replicate or (self._replicate if self._held else None)
        # Held batches came while commits waited, and will soon be visible.
        self._see = see or (self._see if self._held else None)

    def _visible(self, stream: Stream, decoder: Decoder) -> Iterator[Batch]:
        """Yield what has come if it is visible, and hold the rest."""
        if self._held and self._is_visible():
            held, self._held = self._held, []
            self._make_sure()
            yield from held
        if self._held:
            return
        for batch in self._arrived(stream, decoder):
            if self._held or not self._is_visible():
                self._hold(batch)
            else:
                self._make_sure()
                yield batch

    def _make_sure(self) -> None:
        # A place may lie after the server's last report, and not only after the last commit.
        if self._replicate is not None:
            self._replicate()

    def _is_visible(self) -> bool:
        if self._see is None or not self._unseen:
            return True
        now = self._see()
        self._unseen = {xid for xid in self._unseen if not now.sees(now.whole(xid))}
        return not self._unseen

    def _hold(self, batch: Batch) -> None:
        if not self._held:
            self._held_at, self._rest, self._has_warned = time.monotonic(), _FIRST_REST, False
        self._held.append(batch)

    def _arrived(self, stream: Stream, decoder: Decoder) -> Iterator[Batch]:
        """Yield what has come, in batches that may end within a transaction."""
        rows: list[Row] = []
        size = 0
        take, most_bytes = decoder.take, self._batch_bytes
        most = min(FIRST_ROWS, self._batch_rows)
        enough = time.monotonic() + _LONGEST_ROUND
        while (
            not self._held and time.monotonic() < enough and (messages := self._received(stream))
        ):
            for data in messages:
                if data[0] == _KEEPALIVE:
                    self._kept_alive(stream, decoder, data)
                    continue
                try:
                    found = take(data)
                except ValueError as error:
                    msg = (
                        f"after {decoder.position} the write-ahead log holds what this version "
                        f"does not understand ({error}); nothing is lost. If no newer version "
                        "writes there, a role that knows the secret does, and "
                        f"`{ACCEPT}` goes on after what is there by then, without it"
                    )
                    raise Refused(about(self._schema, msg)) from error
                if found:
                    if self._see is not None:
                        self._unseen.add(decoder.xid)
                    rows += found
                    size += len(data)
                    while len(rows) > most:
                        # The rest of a call with many events comes with the next batch.
                        batch, rows = rows[:most], rows[most:]
                        share = size * most // (most + len(rows))
                        yield Batch(batch, decoder.after(batch[-1]), share, newest=decoder.newest)
                        size, most = size - share, self._batch_rows
                    if len(rows) == most or size >= most_bytes:
                        yield Batch(rows, decoder.position, size, newest=decoder.newest)
                        rows, size, most = [], 0, self._batch_rows
        if rows:
            yield Batch(rows, decoder.position, size, newest=decoder.newest)

    def _received(self, stream: Stream) -> list[bytes]:
        messages, self._early = self._early, []
        return messages or self._receive(stream)

    def _receive(self, stream: Stream) -> list[bytes]:
        """Return what has come; nothing more comes if the server lacks the publication."""
        try:
            return stream.receive()
        except psycopg.errors.UndefinedObject as error:
            # First comes what was read before.
            self._refused = Refused(about(self._schema, unreadable(first_line(error))))
            return []

    def has(self, cursor: LogPosition, newest: Newest) -> bool:
        """
        Return whether the log up to `cursor` ends with the transaction `newest`.

        The server reads its log from the beginning of the oldest transaction that was open, which
        may take minutes.
        """
        stream, decoder = self._open(cursor, since=newest.at)
        began, is_said = time.monotonic(), False
        while stream.silence() < _LONGEST_SILENCE and not self._interrupted.is_set():
            if self._refused is not None:
                raise self._refused
            for data in (messages := self._receive(stream)):
                if data[0] == _KEEPALIVE:
                    # A keepalive reports how far the server has looked through the log.
                    if read_keepalive(data).end > newest.at:
                        return False
                    self._kept_alive(stream, decoder, data)
                elif (begun := read_begin(data)) is not None:
                    self._early = messages
                    return begun == newest
            if not is_said and time.monotonic() - began > _PATIENCE:
                is_said = True
                _log.info("Postgres reads its log up to %s", format_lsn(newest.at))
            stream.report(self._confirmed)
            stream.wait(_SLICE, self._wake)
        msg = f"the replication stream does not come to {format_lsn(newest.at)}"
        raise psycopg.OperationalError(msg)

    def _kept_alive(self, stream: Stream, decoder: Decoder, data: bytes) -> None:
        end, wants_reply = read_keepalive(data)
        decoder.caught_up(end)
        stream.received(end)
        if wants_reply:
            stream.report(self._confirmed, now=True)

    def _hear(self, stream: Stream) -> None:
        """Wait for a server that should have sent something."""
        # It may have sent much that nobody has taken, because there was no room for it.
        while (
            stream.silence() > _PATIENCE
            and not stream.has_come()
            and not self._interrupted.is_set()
        ):
            if stream.silence() > _LONGEST_SILENCE:
                msg = f"nothing on the replication stream for {stream.silence():.0f} s"
                raise psycopg.OperationalError(msg)
            stream.report(self._confirmed)
            stream.wait(_SLICE, self._wake)

    def _open(self, position: LogPosition, *, since: int | None = None) -> tuple[Stream, Decoder]:
        """
        Return the stream that stands at `position`; begin one if there is none.

        The server sends what lies between `since` and `position`, and we skip it. It never begins
        later than at `position`, so that nothing can be missing.
        """
        if self._stream is not None and self._decoder is not None:
            if position == (self._given if self._held else self._decoder.position):
                return self._stream, self._decoder
            self.hang_up()
        with connect(self._dsn, purpose="slot") as conn:
            if self._at is not None:
                require_one(self._at, instance_of(conn), "the one that looks for the slot")
            installed = outbox_capture.installed(conn, self._schema)
            prefix = outbox_capture.prefix(conn, self._schema)
        slot = installed.slot
        if self._shard is not None:
            slot = slot_name(slot, self._shard.number, self._shard.of)
        self._stream = Stream(self._dsn, timeout=self._timing.lease)
        if self._at is not None:
            require_one(self._at, self._stream.instance(), "the replication stream")
        lsn = position.lsn if since is None else min(since, position.lsn)
        self._stream.start(slot, installed.publication, lsn)
        tables = {(self._schema, table) for table in TABLES}
        self._decoder = Decoder(prefix, tables, position, shard=self._shard, end=self._end)
        self._decoder.rows_of = self._tracked
        return self._stream, self._decoder

    def hang_up(self) -> None:
        """Release the slot."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._decoder, self._early = None, None, []
        self._refused = None
        self._held, self._unseen = [], set()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for messages; return False at once if there is no stream."""
        if self._stream is None:
            return False
        if self._held:
            self._wait_until_visible(seconds)
        else:
            self._stream.wait(seconds, self._wake)
        return True

    def _wait_until_visible(self, seconds: float) -> None:
        # Messages that come meanwhile stay in the socket.
        rest, self._rest = self._rest, min(2 * self._rest, _LONGEST_REST)
        if time.monotonic() - self._held_at > _PATIENCE and not self._has_warned:
            _log.warning(
                "a commit waits for a synchronous standby: it is published, with what follows it "
                "in the log, when the standby has it"
            )
            self._has_warned = True
        self._wake.wait(min(seconds, rest))

    def confirm(self, cursor: LogPosition, forget: LogPosition | None = None) -> None:
        """Note, from another thread, what is durable, and up to where the server may forget."""
        self._durable = max(self._durable, cursor.lsn)
        self._confirmed = max(self._confirmed, (forget or cursor).lsn)
        self._durable_at = time.monotonic()

    def stay(self) -> None:
        """Keep the server from dropping our connection."""
        if self._stream is not None:
            self._stream.report(self._confirmed)

    def interrupt(self) -> None:
        """End whatever the reading thread waits for, from another thread."""
        self._interrupted.set()
        self._wake.set()

    def close(self) -> None:
        """Close the connection."""
        self.hang_up()
        self._wake.close()
