"""
Follow the installed capture through its switches, from the table into the log and back.

A place in the table says that everything a snapshot sees is published; a place in the log says the
same of everything committed before a position. A switch is one progress record that expresses the
old place in the new form, so a crash finds it either done or not begun. A tick of the table
publishes no rows if it sees any state but `table`: a later event of the same key may already be in
the log.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import psycopg

from outbox.errors import first_line
from outbox.schema import about
from outbox.schema.slots import is_whole, lacking
from relay.errors import Outage, Refused
from relay.postgres.capture.catalog import Look, drop_left_slots, look, moment, prepared, running
from relay.postgres.capture.durable import replicate, write_through
from relay.postgres.capture.table import TableCapture
from relay.postgres.capture.wal import Timing, WalCapture
from relay.postgres.capture.window import ANY_SIZE
from relay.rules.batch import Batch, Leave
from relay.rules.places.fit import put_back_refusal
from relay.rules.places.lsn import format_lsn
from relay.rules.places.progress import Cursor, LogPosition, Newest, Origin, Place, Progress
from relay.rules.places.snapshot import BEGINNING, Snapshot
from relay.rules.server.departure import Departure
from relay.rules.server.slot import (
    Beginning,
    Fault,
    entered,
    fault,
    in_log,
    mismatch,
    place_fault,
    resume,
    table_fault,
)
from relay.rules.server.standbys import fault as standby_fault
from relay.rules.sharding import Shard

_log = logging.getLogger("dovecote.relay")

Expected = Literal["auto", "table", "wal"]

# Seconds between two looks at which capture is installed, and between two questions about running
# transactions on the way out of the log. In the table, looks are rarer if no slot is to be
# dropped, because each tick reports whether the table is left.
_LOOK_EVERY, _LOOK_EVERY_IN_TABLE, _ASK_EVERY = 0.5, 5.0, 0.05


class SwitchingCapture:
    """The committed events of one outbox, wherever they are written."""

    def __init__(
        self,
        dsn: str,
        schema: str,
        shard: Shard | None = None,
        *,
        batch_rows: int,
        batch_bytes: int,
        timing: Timing,
        largest: int = ANY_SIZE,
        expected: Expected = "auto",
        end: int | None = None,
    ) -> None:
        """
        Connect, and check that this is an outbox that can be read; the log is read up to `end`.

        Raises:
            Refused: a standby, or a sequence with a cache; both would lose or reorder events.
            SchemaMissing: the outbox is not installed.
        """
        self._schema, self._expected = schema, expected
        self._shard = shard or Shard(schema)
        self._table = TableCapture(
            dsn,
            schema,
            shard,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            largest=largest,
        )
        self._log = WalCapture(
            dsn,
            schema,
            shard,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            timing=timing,
            end=end,
            at=self._table.instance,
        )
        self._seen: Look | None = None
        self._seen_at = self._asked_at = 0.0
        self._departure: Departure | None = None
        self._left: Cursor | None = None
        self._is_left_durable = self._has_warned = False

    def origin(self) -> Origin:
        return self._table.origin()

    def resume(self, progress: Progress | None, *, verified: bool = True) -> Place:
        """
        Like every capture's; `verified`: the log must end with the transaction published last.
        """
        found = self._look()
        place = progress.cursor if progress else None
        self._refuse(
            mismatch(self._expected, found.state)
            or _standby_fault(found)
            or self._fault(found, place)
        )
        if not found.has_fsync:
            _log.warning("fsync is off: a crash of Postgres can take back what is published")
        if not isinstance(place, LogPosition):
            self._table.require_own_events()
        if found.beginning is None:
            # A new name has no part in what was in the log before it.
            return place or Cursor(BEGINNING, log=found.began_at or 0)
        resumed = resume(found.beginning, place)
        if found.beginning.passed and in_log(resumed) < found.beginning.lsn:
            begins = format_lsn(found.beginning.lsn)
            _log.warning("skipping what was in the log before %s: that was accepted", begins)
        if verified and resumed == place and progress is not None:
            self._require_newest(found, resumed, progress)
        if place is not None and resumed != place:
            _log.warning("going on at %s: the gap from %s was accepted", resumed, place)
        return resumed

    def _require_newest(self, found: Look, place: Place, progress: Progress) -> None:
        """
        Check that the log has the transaction published last, unless its slot has passed it.

        Raises:
            Refused: the log lacks it, so the database was put back to an earlier state.
        """
        newest, slot = progress.newest, found.slot
        if not isinstance(place, LogPosition) or newest is None or slot is None:
            return
        # Beyond its place progress knows nothing of the log.
        if (slot.confirmed or 0) <= newest.at <= place.lsn and not self._log.has(place, newest):
            raise Refused(about(self._schema, put_back_refusal(progress, _transaction(newest))))

    @staticmethod
    def _fault(found: Look, place: Place | None) -> Fault | None:
        if found.beginning is None:
            return table_fault(found.began_at, place)
        return _slot_fault(found, found.beginning, place)

    def batches(self, cursor: Place) -> Iterator[Batch]:
        found = self._look(self._look_every)
        if isinstance(cursor, LogPosition):
            yield from self._in_log(cursor, found)
        elif self._left is not None:
            # The role's session has yet to record the departure; until then, either may be the way
            # on.
            yield Batch([], cursor, 0)
        elif found.beginning is None or (found := self._look()).beginning is None:
            yield from self._in_table(cursor, found)
        else:
            self._refuse(_standby_fault(found))
            yield from self._enter(cursor, found)

    def _refuse(self, wrong: Fault | None) -> None:
        """End the relay if something is wrong."""
        if wrong is not None:
            raise Refused(about(self._schema, str(wrong)))

    def _now(self) -> Snapshot:
        return moment(self._table.conn).snapshot

    def _in_table(self, cursor: Cursor, found: Look) -> Iterator[Batch]:
        if found.installed.state == "table" and _has_slots(found):
            self._tidy()
        self._table.is_replicated = bool(found.standbys)
        for batch in self._table.batches(cursor):
            yield with_log(batch, cursor.log)
        if self._table.is_left:
            self._seen_at = 0

    def _enter(self, cursor: Cursor, found: Look) -> Iterator[Batch]:
        """
        Yield the events in the table from before the slot was made, then the place in the log.
        """
        beginning = _present(found.beginning)
        if (wrong := _slot_fault(found, beginning, cursor)) is not None:
            # Progress decides whether that is true, and a restart begins with it.
            raise Outage(about(self._schema, str(wrong)))
        now, end = moment(self._table.conn)
        before = beginning.before or beginning.passed
        if cursor.log >= beginning.lsn:
            before = None
        if before is not None and not now.covers(before):
            # A commit that waits for a standby comes before the slot, but its rows are still
            # invisible.
            yield Batch([], cursor, 0)
            return
        if cursor.until is not None:
            yield from self._up_to(cursor, replace(cursor, since=cursor.until))
            cursor = Cursor(cursor.since.union(cursor.until), log=cursor.log)
        if before is not None:
            yield from self._up_to(cursor, Cursor(before))
            cursor = Cursor(cursor.since.union(before), log=cursor.log)
        _log.info("the table is published up to %s; going on in the log", cursor.since)
        yield Batch([], entered(beginning, cursor, end), 0, keep=True)

    def _up_to(self, cursor: Cursor, end: Cursor) -> Iterator[Batch]:
        """
        Yield the window between the two; the place after it keeps all that both snapshots see.
        """
        whole = cursor.since.union(end.since)
        for batch in self._table.up_to(end.since, cursor):
            done = isinstance(batch.cursor, Cursor) and batch.cursor.until is None
            yield with_log(replace(batch, cursor=Cursor(whole)) if done else batch, cursor.log)

    def _in_log(self, position: LogPosition, found: Look) -> Iterator[Batch]:
        if found.state == "table":
            msg = f"the log was left for the table, and not by this relay, which is at {position}"
            raise Outage(msg)
        self._refuse(_standby_fault(found))
        if found.others:
            self._tidy()
        departure = self._depart(found)
        if found.standbys:
            self._log.hold(self._now, partial(replicate, self._table.conn))
        else:
            self._log.hold(None, None)
        for batch in self._log.batches(position):
            yield batch
            if isinstance(batch.cursor, LogPosition):
                position = batch.cursor
        if departure is not None:
            place = self._ask(departure, position)
            if place is not None:
                _log.info("the log is published up to %s; going on in the table", position)
                self._log.hang_up()
                self._left, self._is_left_durable = place, False
                yield Batch([], place, 0, keep=True, lsn=format_lsn(position.lsn))

    def _depart(self, found: Look) -> Departure | None:
        """Return the way out of the log, if one is wanted; begin it if it is new."""
        if found.installed.state != "leaving":
            self._departure = None
        elif self._departure is None or self._departure.asked != found.installed.changed:
            self._departure = Departure(found.installed.changed)
            _log.info("leaving the log as soon as no transaction is left that may write to it")
        self._log.track(None if self._departure is None else self._departure.rows_of)
        return self._departure

    def _ask(self, departure: Departure, position: LogPosition) -> Cursor | None:
        """Ask the server how far the way out has come; return its end once it is reached."""
        clock = time.monotonic()
        if clock - self._asked_at < _ASK_EVERY or not self._log.is_between_transactions:
            return None
        self._asked_at = clock
        conn = self._table.conn
        now = moment(conn).snapshot
        if not departure.is_marked:
            departure.look(now, running(conn), prepared(conn))
            if departure.is_free:
                departure.mark(*moment(conn))
                write_through(conn)
        place = departure.place(position, now)
        if place is not None:
            # All else in the log is published, so that what is accepted here is no more than this.
            name = self._look(_LOOK_EVERY).installed.publication
            if not is_whole(conn, self._schema, name, departure.asked):
                raise Refused(about(self._schema, lacking(name)))
        return place

    def settle(self, leave: Leave) -> None:
        left, departure = self._left, self._departure
        if left is None or departure is None or not self._is_left_durable:
            return
        if not leave(departure.asked, number=self._shard.number, of=self._shard.of):
            _log.info("the log is wanted again")
        self._departure, self._seen_at = None, 0
        self._left = None

    def _tidy(self) -> None:
        """Drop slots that nobody needs any more, as they would retain the log."""
        try:
            if drop_left_slots(self._table.conn, self._schema, self._shard):
                self._seen_at = 0
        except psycopg.errors.ObjectInUse as error:
            _log.debug("not dropped yet: %s", first_line(error))
        except psycopg.errors.InsufficientPrivilege as error:
            if not self._has_warned:
                _log.warning("a replication slot that is not needed: %s", first_line(error))
            self._has_warned = True

    @property
    def _look_every(self) -> float:
        seen = self._seen
        if seen is None or seen.installed.state != "table" or _has_slots(seen):
            return _LOOK_EVERY
        return _LOOK_EVERY_IN_TABLE

    def _look(self, every: float = 0.0) -> Look:
        """Return what is installed, at most `every` seconds old."""
        clock = time.monotonic()
        if self._seen is None or clock - self._seen_at >= every:
            self._seen, self._seen_at = look(self._table.conn, self._schema, self._shard), clock
        return self._seen

    def wait(self, seconds: float) -> None:
        if not self._log.wait(seconds):
            self._table.wait(seconds)

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        if isinstance(cursor, LogPosition):
            # On the way from the table into the log, the server must keep all that the slot holds.
            kept = LogPosition(0) if isinstance(forget, Cursor) else forget
            self._log.confirm(cursor, kept)
        elif cursor == self._left:
            self._is_left_durable = True

    def stay(self) -> None:
        self._log.stay()

    def interrupt(self) -> None:
        self._log.interrupt()
        self._table.interrupt()

    def close(self) -> None:
        self._log.close()
        self._table.close()


def _transaction(newest: Newest) -> str:
    return f"is behind a transaction {newest.which.partition('@')[0]}"


def _has_slots(found: Look) -> bool:
    return found.slot is not None or bool(found.others)


def _standby_fault(found: Look) -> Fault | None:
    return None if found.beginning is None else standby_fault(found.standbys)


def _slot_fault(found: Look, beginning: Beginning, place: Place | None) -> Fault | None:
    name, database = found.slot_name, found.installed.database
    wrong = fault(found.slot, name, database, beginning, place=place, others=found.others)
    if wrong is not None or found.slot is None:
        return wrong
    return place_fault(found.slot, beginning, place)


def _present(beginning: Beginning | None) -> Beginning:
    if beginning is None:
        msg = "events are in the log, which began nowhere"
        raise AssertionError(msg)
    return beginning


def with_log(batch: Batch, log: int) -> Batch:
    """Return the batch with a place that also records how far the log was published."""
    if not log or not isinstance(batch.cursor, Cursor):
        return batch
    return replace(batch, cursor=replace(batch.cursor, log=log))
