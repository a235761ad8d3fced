"""
Read committed events from the table with a snapshot cursor.

A row belongs to the window between snapshots S1 and S2 if S2 sees its transaction and S1 does not.
No gap in a sequence can lose a late commit, and a long transaction elsewhere holds nothing up: it
is one more entry in a snapshot (PgQ ticks the same way). Within a window rows come by position,
which is the order of the lock that serialises a key.

The cursor never moves beyond the newest transaction that has events. A server that crashes forgets
the ids of transactions whose end was not yet on disk (above all, those that rolled back), and
assigns them again. A cursor that had passed those ids would lose the transactions that get them
next.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import psycopg
from psycopg import capabilities, sql
from psycopg.types.numeric import Int8BinaryLoader

from outbox import schema as outbox_schema
from outbox.errors import SchemaMissing, first_line
from outbox.schema.restored import foreign, remedy
from relay.errors import Refused
from relay.postgres.capture.catalog import without_row
from relay.postgres.capture.durable import Pending, keep, keep_all, replicate
from relay.postgres.capture.window import ANY_SIZE, COLUMNS, SPARED, after, own, params, tick
from relay.postgres.capture.window import newest as newest_of
from relay.postgres.connect import connect, follow_indexes, instance_of
from relay.postgres.server_log import log_of
from relay.rules.batch import FIRST_ROWS, Batch
from relay.rules.places.lsn import NOWHERE, parse_lsn
from relay.rules.places.progress import Cursor, Newest, Origin, Place
from relay.rules.places.snapshot import BEGINNING, Snapshot
from relay.rules.row import POSITION, TYPE, Row, identity, size_of
from relay.rules.sharding import Shard

_log = logging.getLogger("dovecote.relay")

# Rows that libpq hands over at a time.
_CHUNK = 200

# While nothing is published, seconds between two questions to the standbys about their place.
_SURE_EVERY = 5.0

# A tick's rows have their transaction after the columns.
_POSITION, _COLUMNS, _TRANSACTION = itemgetter(POSITION), itemgetter(slice(-1)), itemgetter(-1)
# In place of a transaction, and of the position and id of one of its events.
_NO_EVENT = b"", 0, ""

# A row too large for a page lacks its type. _SPARING has the columns of a page with such rows.
_TYPE = itemgetter(TYPE)
_SPARING = sql.SQL('position, id::text, "time", topic, {}').format(SPARED)

# Every writer has a transaction id, and its end changes this text.
_GLANCE = b"SELECT pg_current_snapshot()::text"


class _Tick(NamedTuple):
    """The window after a snapshot, as far as one statement finds it."""

    snapshot: str
    end: Snapshot
    """The same, as far as there are events."""
    lsn: str
    """The log up to here holds every commit that `end` sees."""
    rows: list[Row] | None
    """None: they are not few."""
    newest: Newest | None
    unkept: str | None
    """The log must still be written to disk up to here; None: it is."""


class _Nothing(NamedTuple):
    """A tick that found no events."""

    snapshot: str
    batch: Batch


class TableCapture:
    """
    The committed events of one outbox, or of one of its shards, from a cursor on.

    Holds one autocommit connection. Every statement is a short transaction of its own, so reading
    holds back vacuum only while a page is handed over; if events are large, until the broker takes
    them. Not thread-safe.
    """

    def __init__(
        self,
        dsn: str,
        schema: str,
        shard: Shard | None = None,
        *,
        batch_rows: int,
        batch_bytes: int,
        largest: int = ANY_SIZE,
    ) -> None:
        """
        Connect, and check that this is an outbox that can be read.

        A value larger than both `largest` and a batch is not read; only some columns of its row
        are.

        Raises:
            Refused: a standby, or a sequence with a cache; both would lose or reorder events.
            SchemaMissing: the outbox is not installed.
        """
        self._batch_rows, self._batch_bytes, self._largest = batch_rows, batch_bytes, largest
        self._interrupted = threading.Event()
        self._shard, self._own = shard, own(shard)
        self._conn = connect(dsn, purpose="read")
        self.is_left = False
        """The last tick found that events are no longer read here."""
        self.is_replicated = False
        """Commits wait for synchronous standbys."""
        self._replicated, self._replicated_at = "0/0", 0.0
        self._nothing: _Nothing | None = None
        try:
            outbox_schema.require(self._conn, schema)
            self._prepare(schema)
        except BaseException:
            self._conn.close()
            raise

    def _prepare(self, schema: str) -> None:
        conn = self._conn
        conn.adapters.register_loader("timestamptz", Int8BinaryLoader)
        follow_indexes(conn)
        conn.execute("SET max_parallel_workers_per_gather = 0")
        conn.execute("SET default_transaction_isolation = 'read committed'")
        conn.prepare_threshold = 1
        self._schema, self._events = schema, sql.Identifier(schema, "events")
        self._reading = sql.Identifier(schema, "reading")
        self._identity = sql.Identifier(schema, "identity")
        self._ticks: dict[bool, bytes] = {}
        self.instance = instance_of(conn)
        (standby,) = self._one(sql.SQL("SELECT pg_is_in_recovery()"))
        if standby:
            msg = (
                f"{conn.info.host}:{conn.info.port} is a standby: snapshots there count open "
                "transactions as visible, and events would be lost; connect to the primary"
            )
            raise Refused(msg)
        # Whether the server reports the end of its log; a standby there would give itself away.
        self._has_end = log_of(conn) != (0, NOWHERE)
        if conn.info.parameter_status("server_encoding") == "SQL_ASCII":
            msg = (
                f"database {conn.info.dbname} has the encoding SQL_ASCII: which characters its "
                "texts have nobody knows, and Kafka's are UTF-8; move the outbox into a database "
                "of another encoding"
            )
            raise Refused(msg)
        (cache,) = self._one(
            sql.SQL(
                "SELECT seqcache FROM pg_sequence"
                " WHERE seqrelid = pg_get_serial_sequence({}, 'position')::regclass"
            ).format(sql.Literal(self._events.as_string()))
        )
        if cache != 1:
            msg = (
                f"the sequence of {self._events.as_string()}.position has CACHE {cache}: sessions "
                "would hand out positions out of order; ALTER SEQUENCE … CACHE 1"
            )
            raise Refused(msg)

    def require_own_events(self) -> None:
        """
        Check that no rows of another server's dump wait here.

        The ids that they brought would decide which of a key's events comes first.

        Raises:
            Refused: there are some; the message says what to do with them.
        """
        if (xid := foreign(self._conn, self._events)) is not None:
            msg = (
                f"{self._events.as_string()} holds events of transaction {xid}, which is not over "
                "on this server: they come from another server's dump, and would wait for it; "
                "with this relay stopped, delete them if they are published where they come from, "
                f"or run `{remedy(self._events)}`"
            )
            raise Refused(msg)

    def origin(self) -> Origin:
        """Return which database this is, in the form that progress remembers."""
        system, database, schema, snapshot, outbox = self._one(
            sql.SQL(
                "SELECT (SELECT system_identifier::text FROM pg_control_system()),"
                " (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),"
                " (SELECT relnamespace::bigint FROM pg_class WHERE oid = {}::regclass),"
                " pg_current_snapshot()::text, (SELECT id::text FROM {})"
            ).format(sql.Literal(self._events.as_string()), self._identity)
        )
        if outbox is None:
            raise SchemaMissing(without_row(self._schema))
        timeline, lsn = log_of(self._conn) if self._has_end else (0, NOWHERE)
        seen, started = Snapshot.parse(snapshot), self.instance.started
        return Origin(system, database, schema, timeline, lsn, seen, outbox, started)

    def batches(self, cursor: Place) -> Iterator[Batch]:
        if not isinstance(cursor, Cursor):
            msg = f"the table has no place {cursor}"
            raise TypeError(msg)
        newest: Newest | None = None
        while True:
            if cursor.until is None:
                if self._nothing is not None and self._is_still(self._nothing, cursor):
                    yield self._nothing.batch
                    return
                found = self._tick(cursor.since)
                if self.is_left:
                    yield Batch([], cursor, 0)
                    return
                if found.rows is not None:
                    # This was all there was. Later events wait for the next poll: while events
                    # flow there mostly are some, and looking again at once would double the ticks.
                    yield from self._few(found, found.rows)
                    return
                cursor = Cursor(cursor.since, found.end, self._first_position(cursor.since) - 1)
                newest = found.newest
            end = Cursor(until := cursor.until or cursor.since)
            yield from self._window(cursor.since, until, cursor.position, newest)
            cursor, newest = end, None

    def _few(self, found: _Tick, rows: list[Row]) -> Iterator[Batch]:
        batch = Batch(
            rows, Cursor(found.end), sum(map(size_of, rows)), lsn=found.lsn, newest=found.newest
        )
        if not rows:
            self._nothing = _Nothing(found.snapshot, batch)
        if found.unkept is None:
            yield batch
            return
        with Pending() as pending:
            yield replace(batch, is_kept=pending.wait)
            # While the batch is on its way to the broker.
            keep(self._conn, found.unkept)

    def _is_still(self, nothing: "_Nothing", cursor: Cursor) -> bool:
        """
        Return whether nothing was committed since the last tick found nothing.

        This costs half as much as a tick. If it fails, other transactions keep the server busy,
        and the next time goes straight to a tick.
        """
        self._nothing = None
        if cursor != nothing.batch.cursor or self._conn.execute(_GLANCE).fetchone() != (
            nothing.snapshot,
        ):
            return False
        self._nothing = nothing
        return True

    def end(self, since: Snapshot) -> Snapshot:
        """Return a snapshot that sees everything committed, as far as there are events of it."""
        found = self._tick(since)
        if found.rows is None and self._has_end:
            self._keep_all()
        elif found.unkept is not None:
            keep(self._conn, found.unkept)
        return found.end

    def up_to(self, end: Snapshot, cursor: Cursor) -> Iterator[Batch]:
        """Yield what lies after `cursor` and was committed when `end` was taken."""
        if cursor.until is not None:
            yield from self._window(cursor.since, cursor.until, cursor.position)
            cursor = Cursor(cursor.until)
        first = self._first_position(cursor.since) - 1
        yield from self._window(cursor.since, end, first)

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`: nothing announces new rows."""
        self._interrupted.wait(seconds)

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        """Do nothing: rows stay where they are."""

    def stay(self) -> None:
        """Do nothing: the server expects nothing between two statements."""

    def close(self) -> None:
        self._conn.close()

    def interrupt(self) -> None:
        """Cancel the running statement, from another thread, if the server is there to do it."""
        self._interrupted.set()
        try:
            self._conn.cancel_safe(timeout=1)
        except psycopg.Error as error:
            _log.debug("not interrupted: %s", first_line(error))

    @property
    def conn(self) -> psycopg.Connection[Any]:
        """A connection for the reading thread's statements between two batches."""
        return self._conn

    def _one(
        self, query: sql.SQL | sql.Composed, params: Mapping[str, object] = {}
    ) -> tuple[Any, ...]:
        row = self._conn.execute(query, params).fetchone()
        if row is None:
            msg = "a query for one row returned none"
            raise AssertionError(msg)
        return row

    def _tick(self, since: Snapshot) -> _Tick:
        """
        Return the window after `since`.

        One statement has one snapshot, so it sees exactly what the returned snapshot sees.
        """
        unkept = None
        overlaps = bool(since.xip)
        if (query := self._ticks.get(overlaps)) is None:
            # Composed once: it takes as long as all the rest of a tick.
            composed = tick(
                self._events, self._reading, since, shard=self._shard, has_end=self._has_end
            )
            query = self._ticks[overlaps] = composed.as_bytes(self._conn)
        small = min(FIRST_ROWS, self._batch_rows)
        given = {"small": small, "bytes": self._batch_bytes, **params(since)}
        (few, text, _, lsn, _, _, state, on_disk, event, *_, last), *found = self._conn.execute(
            query, given, binary=True
        ).fetchall()
        if not few and last is None:
            # With a later snapshot, because the end of the log must be read after that snapshot.
            one = self._conn.execute(
                newest_of(self._events), params(since), binary=True
            ).fetchone()
            last, position, id_ = one or _NO_EVENT
        elif last is None:
            # As bytes, which sort alike: as int8, half of the ids would be negative.
            latest = max(found, key=_TRANSACTION, default=None)
            last, position, id_ = (
                (_TRANSACTION(latest), *identity(latest)) if latest else _NO_EVENT
            )
        else:
            position, id_ = event.split("/")
        is_left = state != "table"
        if not self._has_end:
            lsn = NOWHERE
        elif few and not (found or last or is_left):
            # The cursor passes nothing that a crash could take back.
            lsn = self._replicated_to(on_disk) if self.is_replicated else on_disk
        elif few and self.is_replicated:
            self._replicate(lsn)
        elif few and parse_lsn(on_disk) < parse_lsn(lsn):
            # A large window is flushed to disk before its first page is read.
            if found and not is_left:
                unkept = lsn
            else:
                keep(self._conn, lsn)
        self.is_left = is_left
        end = Snapshot.parse(text).before(max(since.xmax, (xid := int.from_bytes(last)) + 1))
        rows = sorted(map(_COLUMNS, found), key=_POSITION) if few else None
        newest = Newest(int(position), id_) if xid >= since.xmax else None
        return _Tick(text, end, lsn, rows, newest, unkept)

    def _keep_all(self) -> str:
        """Flush what is visible to disk; return a position in the log after all of it."""
        lsn = keep_all(self._conn)
        if self.is_replicated:
            self._replicate(lsn)
        return lsn

    def _replicate(self, lsn: str) -> None:
        replicate(self._conn)
        self._replicated, self._replicated_at = lsn, time.monotonic()

    def _replicated_to(self, on_disk: str) -> str:
        """Return how far the standbys certainly have the log, while nothing is published."""
        if time.monotonic() - self._replicated_at > _SURE_EVERY:
            self._replicate(on_disk)
        return self._replicated

    def _first_position(self, since: Snapshot) -> int:
        if since == BEGINNING:
            # The window is the whole table, and finding its first row takes as long as reading
            # many.
            return 1
        query = sql.SQL("SELECT coalesce(min(position + 0), 1) FROM {}")
        (first,) = self._one(query.format(after(self._events, since)), params(since))
        return int(first)

    def _window(
        self, since: Snapshot, until: Snapshot, position: int, newest: Newest | None = None
    ) -> Iterator[Batch]:
        """Yield a large window in pages by position; each page is a transaction of its own."""
        spares = self._may_have_large()
        # Written so that no index on xid fits: the pages must follow the primary key.
        query = sql.SQL(
            "SELECT {columns} FROM {events} WHERE position > %(position)s"
            " AND pg_visible_in_snapshot(xid, %(until)s::text::pg_snapshot)"
            " AND NOT pg_visible_in_snapshot(xid, %(since)s::text::pg_snapshot)"
            " AND {own} ORDER BY position LIMIT %(limit)s"
        ).format(
            columns=_SPARING if spares else COLUMNS,
            events=self._events,
            own=self._own,
        )
        lsn = self._keep_all() if self._has_end else NOWHERE
        window = {"until": str(until), "since": str(since), "largest": self._largest}
        limit = min(FIRST_ROWS, self._batch_rows)
        while True:
            read = 0
            page = {**window, "position": position, "limit": limit}
            for rows, size in self._page(query, page):
                read += len(rows)
                position = rows[-1][POSITION]
                done = read < limit and size < self._batch_bytes
                cursor = Cursor(until) if done else Cursor(since, until, position)
                has_large = spares and None in map(_TYPE, rows)
                yield Batch(rows, cursor, size, lsn=lsn, has_large=has_large, newest=newest)
            if read < limit:
                return
            limit = self._batch_rows

    def _page(
        self, query: sql.Composed, params: Mapping[str, object]
    ) -> Iterator[tuple[list[Row], int]]:
        """Yield the rows of one page, split where they are large."""
        rows: list[Row] = []
        size = 0
        # In chunks: loading rows one by one doubles the processor time, and all at once has no
        # bound.
        # libpq before 17 passes on one row at a time.
        chunk = _CHUNK if capabilities.has_stream_chunked() else 1
        for row in self._conn.cursor().stream(query, params, binary=True, size=chunk):
            rows.append(row)
            size += size_of(row)
            if size >= self._batch_bytes:
                yield rows, size
                rows, size = [], 0
        if rows:
            yield rows, size

    def _may_have_large(self) -> bool:
        """Return whether any value was ever stored out of line, so that some may be too large."""
        if self._largest == ANY_SIZE:
            return False
        (found,) = self._one(
            sql.SQL(
                "SELECT coalesce(bool_or(pg_relation_size(reltoastrelid) > 0), false)"
                " FROM pg_class WHERE reltoastrelid <> 0"
                " AND oid IN (SELECT {events}::regclass UNION ALL SELECT inhrelid"
                " FROM pg_inherits WHERE inhparent = {events}::regclass)"
            ).format(events=sql.Literal(self._events.as_string()))
        )
        return bool(found)
