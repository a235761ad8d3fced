"""Watch how far the relay lags, and how much of the log its slot holds back."""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import psycopg

from outbox.schema import about
from outbox.schema import slots as outbox_slots
from relay.errors import Refused
from relay.metrics import Metrics
from relay.postgres.capture.catalog import look
from relay.postgres.capture.lag import waiting
from relay.rules.places.progress import Cursor, Lag, LogPosition, Progress
from relay.rules.server.slot import Budget, accept
from relay.rules.sharding import Shard
from relay.settings import RelaySettings

_log = logging.getLogger("dovecote.relay")

# Counting a backlog slows its publishing down, so it may take this part of the time at most. A
# server that was slow once is asked again after this many seconds all the same.
_PART = 0.02
_LONGEST = 10.0


class BudgetSpent(Exception):
    """The slot holds back more of the log than it may."""


class Guardian:
    """
    Measures in the session of the active role, warns, and reports when the limit is exceeded.
    """

    def __init__(
        self,
        settings: RelaySettings,
        shard: Shard,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schema, self._shard, self._metrics = settings.schema_name, shard, metrics
        self._clock, self._count_at = clock, -math.inf
        self._budget = Budget(settings.wal.warn_bytes, settings.wal.stop_bytes)
        self._warned = False
        self._spent = threading.Event()
        self.lag = Lag()
        """The lag at the last beat."""

    def beat(self, conn: psycopg.Connection, progress: Progress | None) -> None:
        """Measure once."""
        if progress is None:
            conn.execute("SELECT 1")
        elif isinstance(progress.cursor, Cursor):
            self._count(conn, progress.cursor)
            self._metrics.lag_bytes.set(0)
        else:
            # Events in the log cannot be counted.
            self._metrics.lag_rows.set(math.nan)
            self._metrics.lag_seconds.set(math.nan)
            self.lag = replace(self.lag, rows=0, seconds=0.0)
        self._guard(conn, progress)

    def require(self) -> None:
        """
        Check that the budget is not spent.

        Raises:
            BudgetSpent: the slot must go.
        """
        if self._spent.is_set():
            raise BudgetSpent

    def drop_slot(self, conn: psycopg.Connection) -> Refused | None:
        """
        Drop the slot if it still holds back too much; return the refusal that reports it.

        The slot is measured again: a relay that lost the role on the way here may have measured
        long ago, and another relay may have caught up since.
        """
        self._spent.clear()
        found = look(conn, self._schema, self._shard)
        if found.slot is None or not self._budget.is_spent(found.retained):
            return None
        name = found.slot_name
        outbox_slots.drop(conn, name)
        msg = (
            f"replication slot {name} held back {found.retained:,} bytes of the "
            f"write-ahead log, more than wal.stop_bytes ({self._budget.stop:,}), and was dropped; "
            f"the events it had not sent are lost to it. `{accept(name)}` makes a new one"
        )
        return Refused(about(self._schema, msg))

    def _count(self, conn: psycopg.Connection, cursor: Cursor) -> None:
        """Count the events that wait in the table, unless counting took long a short while ago."""
        began = self._clock()
        if began < self._count_at:
            return
        rows, seconds = waiting(conn, self._schema, cursor, self._shard)
        self._metrics.lag_rows.set(rows)
        self._metrics.lag_seconds.set(seconds)
        self.lag = Lag(rows, seconds)
        ended = self._clock()
        self._count_at = ended + min(_LONGEST, (ended - began) / _PART)

    def _guard(self, conn: psycopg.Connection, progress: Progress | None) -> None:
        found = look(conn, self._schema, self._shard)
        if found.slot is None or found.beginning is None:
            self._metrics.slot_retained_bytes.set(0)
            self._metrics.slot_limit_bytes.set(math.nan)
            return
        retained = found.retained
        self._metrics.slot_retained_bytes.set(retained)
        limit = self._budget.limit(found.slot, retained)
        self._metrics.slot_limit_bytes.set(math.nan if limit is None else limit)
        if progress is not None and isinstance(progress.cursor, LogPosition):
            lag = max(0, found.end - progress.cursor.lsn)
            self._metrics.lag_bytes.set(lag)
            self.lag = replace(self.lag, bytes=lag)
        warning = self._budget.warning(found.slot, retained)
        if warning is not None and not self._warned:
            _log.warning("%s; is Kafka, or a long transaction, in the way?", warning)
        self._warned = warning is not None
        if self._budget.is_spent(retained):
            self._spent.set()
