"""Compare the clocks of this machine, Postgres and Kafka."""

import time
from collections.abc import Iterator

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    OffsetSpec,
)

from outbox.errors import BadSettings, NoClient, NoToken
from outbox.kafka import kafka_logger
from outbox.tokens.source import client_of, for_client
from relay.kafka.progress_topic import client_properties
from relay.postgres.connect import connect
from relay.rules.diagnosis import Finding
from relay.settings import RelaySettings

_log = kafka_logger("dovecote.relay.kafka")

# Clocks set by a time server differ by less than this, in seconds.
_TOLERATED = 30.0

NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # it says nothing of types
END = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above

# A transaction ends the topic with progress, often twice, and with a marker.
_LAST = 4


def compare(postgres: float, newest: float | None) -> Iterator[Finding]:
    """
    Yield the clocks that differ, with how many seconds each is ahead of this machine's.

    Kafka tells nobody its time. Instead, `newest` is the time of the newest record of progress,
    which the relay set, or of the marker after it, which the broker set. None: there is no record.
    """
    wrong = False
    if abs(postgres) > _TOLERATED:
        wrong = True
        yield Finding("warn", f"Postgres's clock is {_apart(postgres)} this machine's", _RESOLVE)
    if newest is not None and newest > _TOLERATED:
        wrong = True
        yield Finding(
            "warn",
            f"the newest record of progress is {_apart(newest)} this machine's clock: so is the "
            "relay's, or the broker's",
            _RESOLVE,
        )
    if not wrong:
        seen = "Postgres" if newest is None else "Postgres and of progress in Kafka"
        yield Finding("ok", f"the clocks of this machine, of {seen} agree")


_RESOLVE = (
    "set the clock that is wrong: Kafka refuses records whose time is an hour ahead of its own "
    "(message.timestamp.after.max.ms)"
)


def _apart(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


def look(settings: RelaySettings, timeout: float) -> Iterator[Finding]:
    """Ask Postgres and Kafka, and yield the clocks that differ."""
    with connect(settings.dsn, purpose="doctor") as conn:
        asked = time.time()
        row = conn.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        ahead = row[0] - (asked + time.time()) / 2 if row else 0.0
    yield from compare(ahead, _newest(settings, timeout))


def _newest(settings: RelaySettings, timeout: float) -> float | None:
    """
    Return by how many seconds the newest record of progress is ahead of our clock.

    A clock that was wrong once leaves a later time in the topic, which says nothing of today's.
    """
    try:
        given = for_client(client_properties(settings.kafka))
        admin = client_of(AdminClient, given, _log)
    except (NoClient, NoToken, BadSettings):
        return None  # as below
    place = TopicPartition(settings.progress_topic, 0)
    try:
        asked = admin.list_offsets({place: NEWEST}, request_timeout=timeout)
        newest = asked[place].result()
        asked = admin.list_offsets({place: END}, request_timeout=timeout)
        end = asked[place].result().offset
    except KafkaException:
        # Not there yet, or not ours to ask; another check reports that.
        return None
    is_last = newest.timestamp >= 0 and newest.offset >= end - _LAST
    return newest.timestamp / 1000 - time.time() if is_last else None
