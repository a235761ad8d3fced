"""Report topics and keys of which too many events are parked, while the relay is active."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from outbox.errors import DovecoteError, first_line
from relay.metrics import Metrics
from relay.postgres.census import census
from relay.postgres.connect import connect
from relay.postgres.parked import COUNTED
from relay.rules.crowding import ADVICE, Census, Limits
from relay.settings import RelaySettings

_log = logging.getLogger("dovecote.relay")

# Seconds between two looks while events are parked; and how much longer than a look itself.
_EVERY, _LONGER = 5.0, 20.0
# The longest that one look may take, in milliseconds.
_LONGEST = 60_000
# The most topics and keys that get a line of their own.
_MOST_LINES = 5


class Crowding:
    """
    Counts the parked events now and then, in a session and a thread of its own.

    The count takes the longer the more events there are, and publishing must not wait for it.
    """

    def __init__(
        self, settings: RelaySettings, metrics: Metrics, count: Callable[[], int]
    ) -> None:
        """`count` returns how many events are parked, as far as the relay knows."""
        self._settings, self._metrics, self._count = settings, metrics, count
        self._limits = Limits(settings.park_most, settings.park_most_of_key)
        self._known: set[tuple[str, bytes | None]] = set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count in the background until the end of the block."""
        done = threading.Event()
        thread = threading.Thread(target=self._run, args=(done,), name="crowding", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    def _run(self, done: threading.Event) -> None:
        pause = _EVERY
        while not done.wait(pause):
            began = time.monotonic()
            try:
                found = self._counted() if self._count() else Census()
            except (psycopg.Error, DovecoteError) as error:
                _log.warning("parked events were not counted: %s", first_line(error))
            else:
                if not done.is_set():
                    self.report(found)
            pause = max(_EVERY, _LONGER * (time.monotonic() - began))

    def _counted(self) -> Census:
        settings = self._settings
        with connect(settings.dsn, purpose="count") as conn:
            conn.execute(f"SET statement_timeout = {_LONGEST}".encode())
            return census(conn, settings.schema_name, settings.name, self._limits)

    def report(self, found: Census) -> None:
        """Measure what was found, and log each topic and key that is beyond its limit, once."""
        self._metrics.parked_waiting.set(found.waiting)
        self._metrics.crowded(len(found.topics), len(found.keys))
        if found.events > COUNTED:
            self._metrics.parked.set(found.events)
        fresh = [each for each in found.crowds if each.place not in self._known]
        for each in fresh[:_MOST_LINES]:
            _log.warning("%s: %s", each.said(self._limits), ADVICE)
        if len(fresh) > _MOST_LINES:
            _log.warning(
                "too many events of %d more topics and keys are parked; see "
                "`dovecote relay doctor`",
                len(fresh) - _MOST_LINES,
            )
        self._known = {each.place for each in found.crowds}
