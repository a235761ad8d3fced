"""
Let an idle query rest: an empty batch lasts until something is due or comes.

If an operator has timers, Spark begins a batch at each trigger to look at the clock, and planning
it costs as much as running it. Instead, a batch that has found nothing to do is held here. It
contains nothing new, so it does not matter when it ends, or whether it is run again.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]  # no types

from outbox.errors import DovecoteError, NoClient
from outbox.tokens.source import client_of
from spark_jobs.query.batch import Alarms, KnownAlarms
from spark_jobs.sink import kafka_options
from spark_jobs.sink.group import Ends

_log = logging.getLogger("dovecote.spark")

# Spark dismisses workers that had nothing to do for a minute, and finds new partitions of a topic
# only when a batch begins.
_LONGEST_SECONDS = 10.0
# Even with a trigger of 0 there are beats, because each one asks Kafka.
_SHORTEST_SECONDS = 0.01
# Reading the whole state costs more than a few empty batches.
_QUIET_SECONDS = 30.0


class Rest:
    """Holds the empty batches of one query."""

    def __init__(
        self,
        trigger: timedelta,
        *,
        has_come: Callable[[Ends], bool],
        stored: Callable[[], Alarms],
    ) -> None:
        """
        Hold nothing yet.

        `has_come` returns whether there is something after the given offsets. `stored` returns the
        alarms in the state that the newest finished batch has left.
        """
        self._trigger = max(trigger.total_seconds(), _SHORTEST_SECONDS)
        self._has_come, self._stored = has_come, stored
        self._alarms = KnownAlarms()
        self._busy = time.monotonic()
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alarms")
        self._reading: Future[Alarms | None] | None = None

    def close(self) -> None:
        self._reader.shutdown()

    def stepped(self, batch: int, alarms: Alarms) -> None:
        """Note the alarms of the buckets that a batch has stepped."""
        if batch == 0:
            self._alarms.complete({})  # there is no earlier state
        if alarms:
            self._alarms.report(alarms)
            self._busy = time.monotonic()

    def hold(self, ends: Ends, stop: threading.Event, idle: Callable[[], None]) -> float:
        """
        Return at the first beat of the trigger at which a batch may have something to do.

        `ends` is how far the query has read; `idle` is called at each earlier beat. The result is
        the time that this took, in seconds.
        """
        began = time.monotonic()
        last = began + _LONGEST_SECONDS - self._trigger
        if began > last or not ends or not self._knows_all():
            return 0.0
        while not stop.wait(self._to_next_beat()):
            if time.monotonic() > last or self._is_needed(ends):
                break
            idle()
        return time.monotonic() - began

    def _is_needed(self, ends: Ends) -> bool:
        return self._alarms.is_due(time.time_ns() // 1_000_000) or self._has_come(ends)

    def _to_next_beat(self) -> float:
        """
        Return the time until Spark would begin a batch: it does so at multiples of its trigger.
        """
        return self._trigger - time.time() % self._trigger

    def _knows_all(self) -> bool:
        """Return whether the alarms of all buckets are known; if not, have them read."""
        if self._alarms.is_complete:
            return True
        if self._reading is None:
            if time.monotonic() - self._busy >= _QUIET_SECONDS:
                self._reading = self._reader.submit(self._read)
            return False
        if self._reading.done() and (stored := self._reading.result()) is not None:
            self._alarms.complete(stored)
        return self._alarms.is_complete

    def _read(self) -> Alarms | None:
        try:
            return self._stored()
        except DovecoteError as error:
            _log.warning("an idle query goes on with batches at each trigger: %s", error)
            return None


_OffsetSpecs: Any = _OffsetSpec
_ASK_SECONDS = 2.0


class Arrivals:
    """Asks for the ends of the partitions that a query reads."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._admin: AdminClient | None = None

    def has_after(self, ends: Ends) -> bool:
        """Return whether there may be records after `ends`; also if Kafka does not answer."""
        read = {
            TopicPartition(topic, partition): offset
            for topic, partitions in ends.items()
            for partition, offset in partitions.items()
        }
        latest = dict.fromkeys(read, _OffsetSpecs.latest())
        try:
            if self._admin is None:
                given = kafka_options.quiet(self._kafka)
                self._admin = client_of(AdminClient, given, kafka_options.CLIENT_LOG)
            asked = self._admin.list_offsets(
                latest, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ASK_SECONDS
            )
            return any(each.result().offset != read[place] for place, each in asked.items())
        except (KafkaException, NoClient):
            # Spark asks the same, and will find and report the error. A secret may have changed.
            self._admin = None
            return True
