"""Write events that Kafka may not have taken into the outbox, and ask when they have left it."""

import logging
import threading
import time
from collections.abc import Callable

import psycopg

from outbox.errors import DovecoteError, first_line
from outbox.postgres.away import is_timed_out
from outbox.producer.fallback import Fallback
from outbox.producer.ledger import Ledger
from outbox.producer.options import Options
from outbox.producer.pause import Pause
from outbox.producer.routing import EVERY
from outbox.producer.routing import RouteLimits as RoutingLimits
from outbox.writing.append import is_of_events

_log = logging.getLogger("dovecote.producer")

# A pause ends without a signal: look this often, in seconds.
_LOOK = 0.05


class Spill:
    """The Postgres side of a producer, in one thread."""

    def __init__(
        self, ledger: Ledger, fallback: Fallback, options: Options, send: Callable[[int], None]
    ) -> None:
        """`send` hands an event to Kafka, with the lock held."""
        self._ledger, self._fallback, self._send = ledger, fallback, send
        self._patience = options.delivery_timeout.total_seconds()
        self._longest = options.accept_timeout.total_seconds()
        self._writing, self._asking = Pause(0.05, 1.0), Pause(0.1, 5.0, 1.5)
        self._busy_since: float | None = None
        self._is_cut = False
        """Whether the connection was cut because this attempt took too long."""
        self._most: int | None = None
        """
        Most events of the next transaction, while one that Postgres refuses is looked for, or
        while more of them take too long.
        """

    def run(self, ended: threading.Event) -> None:
        """Write and ask until `ended` is set."""
        ledger = self._ledger
        while not ended.is_set():
            with ledger.changed:
                ledger.changed.wait_for(lambda: ended.is_set() or self._has_work(), _LOOK)
                if ended.is_set() or not self._has_work():
                    continue
                numbers = list(ledger.routing.write(self._most)) if ledger.routing.backlog else []
                needs_token = ledger.routing.needs_token
                self._busy_since, self._is_cut = time.monotonic(), False
            if numbers:
                self._write(numbers)
            elif needs_token:
                self._begin()
            else:
                self._ask()
            self._busy_since = None

    def require_answer(self) -> None:
        """From another thread, cut the connection to Postgres if it hangs."""
        since = self._busy_since
        if since is not None and time.monotonic() - since > self._patience:
            self._is_cut = True
            self._fallback.cut()

    def hurry(self) -> None:
        """Ask soon: Kafka is back."""
        self._asking.shorter()

    def _has_work(self) -> bool:
        routing = self._ledger.routing
        if self._writing.left:
            return False
        # While Kafka is away nothing drains.
        asks = routing.is_up and routing.lanes > 0 and not self._asking.left
        return routing.backlog > 0 or asks

    def _write(self, numbers: list[int]) -> None:
        ledger = self._ledger
        try:
            token = self._fallback.write([ledger.waiting[number].event for number in numbers])
        except (psycopg.Error, DovecoteError) as error:
            with ledger.changed:
                given_up = self._given_up(numbers, error)
                ledger.routing.not_written(given_up)
                answers = ledger.refused(given_up, first_line(error))
        else:
            with ledger.changed:
                self._answered()
                if self._most is not None:
                    self._most = 2 * self._most if ledger.routing.backlog else None
                answers = ledger.accepted(ledger.routing.written(token), "outbox")
                self._asking.shorter()
        ledger.give(answers)

    def _given_up(self, numbers: list[int], error: Exception) -> list[int]:
        """Return the events not to try again; if one may be at fault, write fewer next time."""
        if not is_of_events(error):
            self._failed(error)
            too_many = self._is_cut or is_timed_out(error)
            self._most = max(1, len(numbers) // 2) if too_many else None
            return self._ledger.waiting.older(numbers, than=time.monotonic() - self._longest)
        self._answered()
        # An error may last a moment only: the first attempt never counts.
        is_found = self._most == len(numbers) == 1
        self._most = max(1, len(numbers) // 2)
        return numbers if is_found else []

    def _begin(self) -> None:
        try:
            token = self._fallback.token()
        except psycopg.Error as error:
            with self._ledger.changed:
                self._failed(error)
            return
        with self._ledger.changed:
            self._answered()
            self._ledger.routing.began(token)

    def _ask(self) -> None:
        """Ask which lanes may return to Kafka, and send the events that they have held back."""
        routing, most = self._ledger.routing, RoutingLimits().lanes
        with self._ledger.changed:
            asked = routing.questions()
        try:
            drained = self._fallback.drained(asked)
            parked = self._fallback.parked(most + 1) if EVERY in drained else []
        except psycopg.Error as error:
            with self._ledger.changed:
                self._failed(error)
            return
        with self._ledger.changed:
            self._answered()
            for number in routing.answered(asked, drained, time.monotonic(), parked):
                self._send(number)
            self._asking.longer()
            if drained or routing.is_holding:
                self._asking.shorter()

    def _failed(self, error: Exception) -> None:
        said = first_line(error)
        if self._ledger.outbox_trouble is None:
            _log.warning("the outbox does not answer: Postgres: %s", said)
        self._ledger.outbox_trouble = said
        self._writing.longer()

    def _answered(self) -> None:
        self._ledger.outbox_trouble = None
        self._writing.shorter()
