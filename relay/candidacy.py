"""
A standby's claim, kept in Postgres, that it can reach Kafka, and its reason if it cannot.

An active relay gives its role up if it publishes nothing, Kafka does not answer its own questions,
and another relay could do better. Candidates show that by what they hold, which ends with their
session. A slow connection is no reason to give up: the next relay would start over on the same
one. While Kafka is away for everybody there is no candidate, and the role stays where it is,
because its holder guards the write-ahead log.
"""

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from outbox.errors import BadSettings, NoClient, NoToken
from outbox.kafka import kafka_logger
from outbox.tokens.source import lasting
from relay.kafka.progress_topic import ALWAYS_THERE, client_properties
from relay.postgres.connect import connect
from relay.postgres.lease import Hold, active, try_lock
from relay.settings import RelaySettings

_log = kafka_logger("dovecote.relay.kafka")

# How often a standby asks Kafka, and for how long an answer counts, as parts of the lease. A
# counted answer is always newer than the time after which the active relay looks for others.
_EVERY, _COUNTS = 0.25, 0.5
# How long an answer may take, in seconds.
_ANSWER = 5.0


class Candidacy:
    """A process that stands by for the roles whose candidates hold one of each of `keys`."""

    def __init__(self, settings: RelaySettings, keys: Sequence[Hold]) -> None:
        self._settings, self._keys = settings, keys
        self._watch: KafkaWatch | None = None
        self._conn: psycopg.Connection[Any] | None = None
        self._defers_until = 0.0

    def may_ask(self) -> bool:
        """Return whether to ask for a role: no if we may not reach Kafka, and another can."""
        watch = self._watch
        if watch is not None and watch.has_reached and time.monotonic() >= self._defers_until:
            return True
        with connect(self._settings.dsn, purpose="standby") as conn:
            return not any(active(conn, key) for key in self._keys)

    def stand(self) -> str | None:
        """Stand for the roles if Kafka can be reached; otherwise return why it cannot."""
        self._watch = watch = self._watch or KafkaWatch(self._settings)
        if watch.has_reached and time.monotonic() >= self._defers_until:
            try:
                self._announce()
            except psycopg.Error:
                self._take_back()
                raise
        else:
            self._take_back()
        return watch.reason

    def defer(self) -> None:
        """
        Let others go first for a while, because we had the role and could do nothing with it.
        """
        patience = max(self._settings.lease, 2 * self._settings.standby_poll)
        self._defers_until = time.monotonic() + patience.total_seconds()

    def withdraw(self) -> None:
        """Stop standing: the role is ours, or the process ends."""
        if self._watch is not None:
            self._watch.end()
        self._watch = None
        self._take_back()

    def _announce(self) -> None:
        if self._conn is not None:
            self._conn.execute("SELECT 1")
            return
        self._conn = connect(self._settings.dsn, purpose="candidate")
        # Nobody should leave the role to a process that hangs.
        patience = self._settings.lease + self._settings.standby_poll
        self._conn.execute(
            "SELECT set_config('idle_session_timeout', %s, false)",
            [str(int(patience.total_seconds() * 1000))],
        )
        for key in self._keys:
            try_lock(self._conn, key)

    def _take_back(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = None


class KafkaWatch:
    """Keeps asking Kafka, in a thread of its own, until `end`."""

    def __init__(self, settings: RelaySettings) -> None:
        lease = settings.lease.total_seconds()
        self._every, self._counts = _EVERY * lease, _COUNTS * lease
        self._reached_at, self._asked_at = -math.inf, time.monotonic()
        self._began = self._asked_at
        self._reason: str | None = None
        self._said: list[KafkaError] = []
        self._given = client_properties(settings.kafka)
        self._admin: AdminClient | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    @property
    def has_failed(self) -> bool:
        """Return whether Kafka has been asked for long enough and has not answered lately."""
        return time.monotonic() - self._began > self._counts and not self.has_reached

    @property
    def has_reached(self) -> bool:
        """Return whether Kafka has answered lately."""
        return time.monotonic() - self._reached_at < self._counts

    @property
    def reason(self) -> str | None:
        """Return why there is no answer, or None while one may still come."""
        waited = time.monotonic() - self._asked_at
        if self.has_reached or (self._reason is None and waited < self._counts):
            return None
        why = self._reason or f"no answer for {waited:.0f} s"
        return f"Kafka: {why}; this standby could not take over"

    def end(self) -> None:
        self._done.set()

    def _run(self) -> None:
        while not self._done.is_set():
            self._ask()
            self._done.wait(self._every)

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        try:
            admin = self._client()
        except (BadSettings, NoClient, NoToken) as error:
            self._reason = str(error).removeprefix("Kafka: ")
            return
        try:
            # Not `describe_cluster`: if a broker dies during the call, an assertion in
            # librdkafka's parser aborts the process.
            admin.list_topics(ALWAYS_THERE, _ANSWER)
        except KafkaException as error:
            admin.poll(0)  # calls error_cb with librdkafka's errors about its brokers
            cause = error.args[0] if error.args else None
            reasons = [cause.str()] if isinstance(cause, KafkaError) else ["no answer"]
            reasons += [each.str() for each in self._said[-1:]]
            self._said.clear()
            self._reason = "; ".join(reasons)
        else:
            self._reached_at, self._reason = time.monotonic(), None

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = lasting(AdminClient, self._given, _log, also=self._said.append)
        return self._admin
