"""Limit the inbox to its retention, and raise an alarm if the consumer's lag exceeds that."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import psycopg
from psycopg import sql

from dedup.inbox.connections import PATIENCE, Connections

_log = logging.getLogger("dovecote.consumer.inbox")

_EVERY_SECONDS = 30.0
# A turn of the inbox takes three calls, and the retention takes eight turns.
_CALLS_PER_RETENTION = 60


class Keeper:
    """Rotates the inbox, in a thread of its own; several keepers do no harm."""

    def __init__(
        self,
        dsn: str,
        schema: str,
        retention: timedelta,
        *,
        patience: float = PATIENCE,
        lag: Callable[[], float],
        exceeded: Callable[[bool], None],
    ) -> None:
        self._connections = Connections(dsn, patience=patience, ours=True)
        self._schema, self._retention = schema, retention
        self._lag, self._exceeded = lag, exceeded
        self._was_behind = False

    def once(self) -> None:
        """Do what is due; if the database is away, log that and try again next time."""
        self.compare()
        query = sql.SQL("SELECT {}.rotate(%s)").format(sql.Identifier(self._schema))
        try:
            with closing(self._connections), self._connections.begin() as conn:
                conn.execute(query, [self._retention])
        except psycopg.Error as error:
            _log.warning("the inbox's turn was not passed on: %s", str(error).strip())

    def compare(self) -> None:
        """Raise the alarm if the consumer's lag exceeds the inbox's retention."""
        lag = self._lag()
        behind = lag > self._retention.total_seconds()
        self._exceeded(behind)
        if behind and not self._was_behind:
            _log.error(
                "the consumer is %.0f s behind, the inbox remembers %.0f s: a duplicate of an "
                "event may be handled again; set a longer `inbox.retention`, or add consumers",
                lag,
                self._retention.total_seconds(),
            )
        elif self._was_behind and not behind:
            _log.info("the consumer is within what the inbox remembers again")
        self._was_behind = behind

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Run the keeper in the background until the end of the block."""
        enough = threading.Event()
        every = min(
            _EVERY_SECONDS, max(0.1, self._retention.total_seconds() / _CALLS_PER_RETENTION)
        )

        def work() -> None:
            while not enough.wait(every):
                self.once()

        thread = threading.Thread(target=work, name="inbox", daemon=True)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()
