"""Questions that a consumer without work asks its servers now and then."""

from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from typing import Any

from confluent_kafka.admin import AdminClient

from dedup.health import Health
from dedup.rules.shared import unread
from dedup.settings.consumer import ConsumerSettings
from dovecote.process.proof import Proof
from dovecote.process.states import ASK_SECONDS
from outbox.kafka import kafka_logger
from outbox.tokens.source import lasting

_log = kafka_logger("dovecote.consumer.kafka")

_SECONDS = 5.0


def shared(
    settings: ConsumerSettings, health: Health, names: Callable[[], Iterable[str]]
) -> Proof:
    """
    Return a proof that the other members of the group have all partitions.

    It asks only while this member has none. A member without a partition is a standby if the
    others have them all; if somebody lacks a reader, the group is broken.
    """
    made: list[AdminClient] = []

    def ask() -> str | None:
        read = list(names())
        if settings.partitions is not None or health.levels.assigned or not read:
            return None
        if not made:
            made.append(lasting(AdminClient, settings.kafka, _log))
        (admin,) = made
        there = admin.list_topics(timeout=_SECONDS).topics
        partitions = [(name, n) for name in read if name in there for n in there[name].partitions]
        asked: Any = admin.describe_consumer_groups([settings.group], request_timeout=_SECONDS)
        members = asked[settings.group].result(2 * _SECONDS).members
        return unread(partitions, [_assigned(each) for each in members])

    return Proof(ask, close=made.clear)


def _assigned(member: Any) -> Collection[tuple[str, int]]:  # noqa: ANN401  # it has no type
    given = member.assignment
    if given is None:
        return []
    return [(each.topic, each.partition) for each in given.topic_partitions]


def inbox(settings: ConsumerSettings, worked: Callable[[], float | None]) -> Proof | None:
    """
    Return a proof that the inbox answers, None if there is no inbox.

    `worked` returns how long ago a record was completed: its transaction was a proof, too.
    """
    found = settings.inbox
    if found is None:
        return None
    from dedup.inbox.connections import Connections  # it loads psycopg

    def ask() -> str:
        ago = worked()
        if ago is not None and ago < ASK_SECONDS:
            return ""
        connections = Connections(found.dsn, patience=min(found.patience, _SECONDS), ours=True)
        with closing(connections), connections.begin() as conn:
            conn.execute("SELECT 1")
        return ""

    return Proof(ask)
