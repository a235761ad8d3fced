"""Pass changes in the database to the engine, and the engine's reports to the database."""

import logging
import threading
import time
from collections.abc import Collection
from datetime import datetime
from uuid import uuid4

import psycopg
from pydantic import ValidationError

from dedup.inbox.connections import PATIENCE
from dovecote.process.states import State
from dovecote.push.health import Health
from dovecote.push.rules.sending.ports import Delivers, DeliveryReport, Work
from dovecote.push.rules.subscription.subscription import problems
from dovecote.push.store.notes import Notes
from dovecote.push.store.secrets import Keys, References
from dovecote.push.store.store import Store, Stored
from dovecote.push.store.tables import Tables
from outbox.errors import DovecoteError
from outbox.postgres.overdue import Connection

_log = logging.getLogger("dovecote.push")

_CHANNEL = 'LISTEN "dovecote.push"'
# How often to look secrets in files and variables up again.
_LOOK_AGAIN_SECONDS = 30.0
# A subscription that begins or ends to fail is reported at once, but not more often than this:
# each report has all subscriptions.
_SOON_SECONDS = 0.25
_SHARE = 10.0
"""A report rests so many times as long as it took."""
# A session that has just ended is no sign that the next one cannot begin.
_FIRST_PAUSE = 0.1


class Feed:
    """
    A thread that hands the active subscriptions to the engine whenever they change.

    It listens for notifications, and also polls every `every` seconds. While Postgres is away the
    engine continues with what it has.
    """

    def __init__(
        self,
        tables: Tables,
        store: Store,
        notes: Notes,
        engine: Delivers,
        *,
        keys: Keys,
        references: References,
        every: float = 2.0,
        turned: threading.Event | None = None,
    ) -> None:
        """Follow nothing yet; `turned` is set if a subscription begins or ends to fail."""
        self._tables, self._store, self._notes, self._engine = tables, store, notes, engine
        self._keys, self._references, self._every = keys, references, every
        self._process = uuid4()
        self._turned = turned or threading.Event()
        self._revision: int | None = None
        self._looked = 0.0
        self._unusable: dict[str, DeliveryReport] = {}
        self._handed: dict[str, tuple[Work, datetime | None]] = {}
        self._stop, self._pause = threading.Event(), _FIRST_PAUSE
        self._thread = threading.Thread(target=self._run, name="push-feed", daemon=True)
        self.health = Health()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the engine goes on until it is stopped itself."""
        self.health.is_ending = True
        self._stop.set()
        self._thread.join()
        try:
            self._notes.report(self._process, {})
        except DovecoteError as error:
            _log.debug("no last report: %s", error)

    def snapshot(self) -> dict[str, DeliveryReport]:
        """Return this process's state of each subscription."""
        return {**self._engine.snapshot(), **self._unusable}

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with Connection.own(self._tables.dsn, patience=PATIENCE) as conn:
                    conn.execute(_CHANNEL)
                    self._follow(conn)
            except (DovecoteError, psycopg.Error) as error:
                self.health.say(f"Postgres: {error}")
                _log.warning("subscriptions are not followed for now: %s", error)
                self._stop.wait(self._pause)
                self._pause = min(2 * self._pause, self._every)
            except Exception as error:  # noqa: BLE001  # without this thread no change is followed
                self.health.say(f"subscriptions are not followed: {type(error).__name__}: {error}")
                _log.exception("subscriptions are not followed for now")
                self._stop.wait(self._every)

    def _follow(self, conn: Connection) -> None:
        while not self._stop.is_set():
            self._look()
            self._turned.clear()  # before the snapshot, which has what it stands for
            began = time.monotonic()
            reports = self.snapshot()
            self.health.told(reports)
            self._notes.report(self._process, reports)
            self.health.say("")
            self._pause = _FIRST_PAUSE
            self._rest(conn, soon=max(_SOON_SECONDS, _SHARE * (time.monotonic() - began)))
            conn.execute("SELECT 1")  # a dead connection that only listens would never show it

    def _rest(self, conn: Connection, *, soon: float) -> None:
        """Wait for a change of the subscriptions, or `soon` for a change of their states."""
        until = time.monotonic() + self._every
        while (left := until - time.monotonic()) > 0 and not self._stop.is_set():
            for _ in conn.notifies(timeout=min(left, soon), stop_after=1):
                return  # a change: look at once
            if self._turned.is_set():
                return

    def _look(self) -> None:
        """Hand over the changes since the last time, if there are any."""
        revision = self._store.revision()
        is_old = time.monotonic() - self._looked > _LOOK_AGAIN_SECONDS
        if revision == self._revision and not is_old:
            return
        self._hand_over([each for each in self._store.all() if each.status.state == "active"])
        self._revision, self._looked = revision, time.monotonic()

    def _hand_over(self, active: Collection[Stored]) -> None:
        work, unusable = [], {}
        for each in active:
            try:
                work.append(self._work(each))
            except ValidationError as error:
                why = "; ".join(f"{path}: {words}" for path, words in problems(error))
                unusable[each.id] = said = DeliveryReport(
                    running=False, trouble=why, state=State.FAILING, reason=why
                )
                # Log it once for the operator who has to repair it, although it is checked again
                # and again.
                if self._unusable.get(each.id) != said:
                    _log.warning("subscription %s cannot be delivered: %s", each.id, why)
        self._engine.reconcile(work)
        self._unusable = unusable

    def _work(self, found: Stored) -> Work:
        """
        Return the work for a subscription; a changed secret makes a new version.

        So does resuming after it was disabled: the engine has dropped a disabled subscription.
        """
        resolved = self._references.resolved(found.subscription(self._keys))
        since = found.status.since
        before, was_since = self._handed.get(found.id, (None, None))
        if before is None or before.subscription != resolved or was_since != since:
            version = 1 if before is None else before.version + 1
            self._handed[found.id] = Work(resolved, version), since
        return self._handed[found.id][0]
