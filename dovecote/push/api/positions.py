"""Set a group's position: to a time, to offsets, to the beginning or the end."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]  # no types

from dovecote.push.errors import Away, Conflict, RequestRefused
from dovecote.push.rules.subscription.sections import At, Offsets, Position
from dovecote.push.rules.subscription.subscription import Subscription
from outbox.errors import NoClient
from outbox.kafka import kafka_logger
from outbox.kafka_errors import right, told
from outbox.tokens.source import client_of, for_client

_log = kafka_logger("dovecote.push.kafka")

OffsetSpec: Any = _OffsetSpec

_SECONDS = 10.0
_POLL_SECONDS = 0.2
_EMPTY = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})
_BUSY = frozenset(
    {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}
)

# Errors of a broker that has just become a group's coordinator; librdkafka does not call them
# retriable.
_MOMENTARY = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


class Positions:
    """The positions of groups on one broker."""

    def __init__(self, kafka: Mapping[str, str], *, admin: AdminClient | None = None) -> None:
        """
        Connect at the first question, unless `admin` is connected.

        Raises:
            Away: there can be no client now.
        """
        try:
            self._admin = admin or client_of(AdminClient, for_client(kafka), _log)
        except NoClient as error:
            raise Away(str(error)) from error

    def reset(self, subscription: Subscription, to: Position) -> dict[str, dict[str, int]]:
        """
        Set the position of a subscription's group; return offsets by topic and partition.

        Raises:
            Away: Kafka does not answer.
            Conflict: somebody reads with this group.
            RequestRefused: there is no such topic or partition.
        """
        places = self._places(subscription)
        wanted = self._chosen(places, to)
        group = subscription.group_id
        try:
            asked = self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=_SECONDS
            )
            answered = asked[group].result().topic_partitions
        except KafkaException as error:
            raise _of_group(error, group) from error
        for each in answered:
            if each.error is not None:
                raise _of_topic(KafkaException(each.error), each.topic)
        found: dict[str, dict[str, int]] = {}
        for place in wanted:
            found.setdefault(place.topic, {})[str(place.partition)] = place.offset
        return found

    def wait_until_empty(self, group: str, *, seconds: float) -> None:
        """
        Wait until a group has no members.

        Raises:
            Away: Kafka does not answer.
            Conflict: there still is one after `seconds`.
        """
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while (members := self._members(group)) != 0:
            if time.monotonic() > deadline:
                if members is None:
                    msg = f"Kafka: no broker looks after group {group!r} yet: ask again"
                    raise Away(msg)
                msg = (
                    f"group {group!r} still has members after {seconds:.0f} s: end whoever "
                    "else reads with it, and ask again"
                )
                raise Conflict(msg)
            pause.wait(_POLL_SECONDS)

    def _members(self, group: str) -> int | None:
        """Return the number of a group's members; None: its broker cannot say yet."""
        try:
            asked = self._admin.describe_consumer_groups([group], request_timeout=_SECONDS)
            found = asked[group].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            if code in _MOMENTARY:
                return None
            raise _of_group(error, group) from error
        return 0 if found.state in _EMPTY else len(found.members)

    def _places(self, subscription: Subscription) -> list[tuple[str, int]]:
        """Return the partitions that a subscription reads."""
        try:
            there = self._admin.list_topics(timeout=_SECONDS).topics
        except KafkaException as error:
            raise _said(error, "topics", "") from error
        if subscription.partitions:
            asked = {each.topic: set(each.numbers) for each in subscription.partitions}
        else:
            asked = {name: set() for name in subscription.named(there)}
        places = []
        for topic, numbers in sorted(asked.items()):
            if topic not in there:
                msg = (
                    f"there is no topic {topic!r} that we may see; if it is there, grant this "
                    f"user {right('Read', 'topic', topic)}, see docs/security.md"
                )
                raise RequestRefused(msg)
            known = set(there[topic].partitions)
            if missing := numbers - known:
                msg = f"topic {topic!r} has no partition {min(missing)}"
                raise RequestRefused(msg)
            places += [(topic, number) for number in sorted(numbers or known)]
        return places

    def _chosen(self, places: list[tuple[str, int]], to: Position) -> list[TopicPartition]:
        if isinstance(to, Offsets):
            chosen = list(to.places())
            if stray := {each[:2] for each in chosen} - set(places):
                topic, partition = min(stray)
                msg = f"the subscription does not read partition {partition} of {topic!r}"
                raise RequestRefused(msg)
            return [TopicPartition(*each) for each in chosen]
        if isinstance(to, At):
            since = max(0, round(to.time.timestamp() * 1000))  # no record is older than 1970
            found = self._offsets(places, OffsetSpec.for_timestamp(since))
            ends = self._offsets(places, OffsetSpec.latest())
            found = {place: ends[place] if at < 0 else at for place, at in found.items()}
        else:
            spec = OffsetSpec.earliest() if to == "earliest" else OffsetSpec.latest()
            found = self._offsets(places, spec)
        return [TopicPartition(*place, offset) for place, offset in found.items()]

    def _offsets(
        self, places: list[tuple[str, int]], spec: _OffsetSpec
    ) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        topic = places[0][0]
        try:
            asked = self._admin.list_offsets(
                {TopicPartition(*place): spec for place in places}, request_timeout=_SECONDS
            )
            found: dict[tuple[str, int], int] = {}
            for place, answer in asked.items():
                topic = place.topic
                found[topic, place.partition] = answer.result().offset
        except KafkaException as error:
            raise _of_topic(error, topic) from error
        return found


def _of_group(error: KafkaException, group: str) -> Away | Conflict | RequestRefused:
    return _said(error, f"group {group!r}", right("Read", "group", group))


def _of_topic(error: KafkaException, topic: str) -> Away | Conflict | RequestRefused:
    return _said(error, f"topic {topic!r}", right("Read", "topic", topic))


def _said(error: KafkaException, what: str, needed: str) -> Away | Conflict | RequestRefused:
    """Return the error for the caller that stands for one of Kafka's."""
    found = error.args[0]
    msg = f"Kafka, {what}: {found.name()}: {told(found, needed)}"
    if found.code() in _BUSY:
        return Conflict(f"{msg}; pause whatever reads with it")
    if found.retriable() or found.code() < 0 or found.code() in _MOMENTARY:
        return Away(msg)
    return RequestRefused(msg)
