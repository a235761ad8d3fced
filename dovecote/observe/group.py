"""Ask Kafka about a consumer group: members, offsets, lag, retries and dead letters."""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from urllib.error import HTTPError
from urllib.request import Request

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from dedup.kafka.dead_newest import newest
from dedup.kafka.dead_topic import DeadTopic
from dedup.retries.letter import Which
from dedup.rules import topics as of_topics
from dedup.rules.lanes.offset_metadata import decode
from dedup.rules.record import Record
from dovecote.observe.reading import GROUP
from dovecote.observe.rules.group import GroupMember, GroupPartition, GroupStatus, ReadyAnswer
from dovecote.observe.sources import ConsumerSource
from dovecote.observe.topics import TopicAdmin
from dovecote.process.http.asking import ask, body_of, why
from dovecote.process.topics import topics
from outbox import envelope
from outbox.errors import DovecoteError, InvalidEvent
from outbox.kafka import fields_of, kafka_logger
from outbox.kafka_errors import right, told
from outbox.timestamps import milliseconds, time_of
from outbox.tokens.source import client_of, for_client

_log = kafka_logger("dovecote.observe.kafka")
_SECONDS = 15.0
_READY_SECONDS = 5.0
_MOST_DEAD = 1_000
_MOST_SAID = 500
_POLL_SECONDS = 0.2


def look(source: ConsumerSource) -> GroupStatus:
    """
    Return what Kafka says of a consumer's group; what cannot be asked is among its `failures`.

    Raises:
        DovecoteError: Kafka does not answer, or does not let us see the group.
    """
    there = topics(source.kafka)
    admin = client_of(AdminClient, for_client(source.kafka), _log)
    failures: list[str] = []
    try:
        state, members, owners = _members(admin, source.group)
        commits = _committed(admin, source.group)
    except KafkaException as error:
        said = told(error.args[0], right("Describe", "group", source.group))
        msg = f"group {source.group!r} cannot be seen: {said}"
        raise DovecoteError(msg) from error
    read = of_topics.matched(source.topics, there)
    retries = [tier.topic for tier in source.retries.tiers]
    wanted = [*read, *retries]
    missing = [name for name in wanted if name not in there]
    failures += [f"no topic {name!r} that we may see" for name in missing]
    found = _partitions(source, [name for name in wanted if name in there], owners, commits)
    dead, whole = _dead(source, there, failures)
    return GroupStatus(
        group=source.group,
        kafka_state=state,
        members=members,
        partitions=[each for each in found if each.topic not in retries],
        retries=[each for each in found if each.topic in retries],
        dead=dead,
        dead_whole=whole,
        ready=[_ready(url) for url in source.metrics],
        failures=failures,
    )


def _members(
    admin: AdminClient, group: str
) -> tuple[str, list[GroupMember], dict[tuple[str, int], str]]:
    """Return Kafka's word for the group's state, its members, and who has which partition."""
    answer = admin.describe_consumer_groups([group], request_timeout=_SECONDS)[group]
    try:
        found = answer.result(_SECONDS + 1)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return "DEAD", [], {}
        raise
    members: list[GroupMember] = []
    owners: dict[tuple[str, int], str] = {}
    for each in found.members:
        has = list(each.assignment.topic_partitions) if each.assignment else []
        members.append(
            GroupMember(
                id=each.member_id, client=each.client_id, host=each.host, partitions=len(has)
            )
        )
        owners |= {(place.topic, place.partition): each.member_id for place in has}
    return found.state.name, members, owners


def _committed(admin: AdminClient, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Return the committed offset of each partition, and what is committed with it."""
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(asked, request_timeout=_SECONDS)[group]
    try:
        found = answer.result(_SECONDS + 1).topic_partitions
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {
        (place.topic, place.partition): (place.offset, place.metadata)
        for place in found
        if place.offset >= 0
    }


def _partitions(
    source: ConsumerSource,
    names: Sequence[str],
    owners: Mapping[tuple[str, int], str],
    commits: Mapping[tuple[str, int], tuple[int, str | None]],
) -> list[GroupPartition]:
    if not names:
        return []
    made: list[tuple[str, int, int | None, int | None, int | None, int]] = []
    for topic in TopicAdmin(source.kafka).describe(names):
        for each in topic.partitions:
            committed, metadata = commits.get((topic.name, each.number), (None, None))
            first = each.first if committed is None else committed
            beyond = [] if committed is None else decode(committed, metadata)
            completed = sum(end - begin for begin, end in beyond)
            lag = None
            if each.end is not None and first is not None:
                lag = max(0, each.end - max(first, each.first or 0) - completed)
            made.append((topic.name, each.number, committed, each.end, lag, completed))
    waiting = {(name, number): committed for name, number, committed, _, lag, _ in made if lag}
    heads = _first_records(source.kafka, waiting)
    tiers = {tier.topic for tier in source.retries.tiers}
    now = time.time()
    return [
        GroupPartition(
            topic=name,
            partition=number,
            member=owners.get((name, number)),
            committed=committed,
            end=end,
            lag=lag,
            seconds=_age(heads.get((name, number)), now) if lag else 0.0,
            completed=completed,
            due=_due(heads.get((name, number))) if name in tiers else None,
        )
        for name, number, committed, end, lag, completed in made
    ]


def _first_records(
    kafka: Mapping[str, str], waiting: Mapping[tuple[str, int], int | None]
) -> dict[tuple[str, int], Record]:
    """Return the first record of each partition from an offset on, if it is soon to be had."""
    found: dict[tuple[str, int], Record] = {}
    if not waiting:
        return found
    consumer = client_of(
        Consumer,
        {
            **for_client(kafka),
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 4_096,
        },
        _log,
    )
    try:
        begins = [
            TopicPartition(name, number, 0 if offset is None else offset)
            for (name, number), offset in waiting.items()
        ]
        consumer.assign(begins)
        open_, deadline = set(waiting), time.monotonic() + _SECONDS
        while open_ and time.monotonic() < deadline:
            for message in consumer.consume(100, _POLL_SECONDS):
                place = (message.topic() or "", message.partition() or 0)
                if place not in open_:
                    continue
                error = message.error()
                if error is None:
                    found[place] = Record(*fields_of(message))
                elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    continue
                open_.discard(place)
                consumer.pause([TopicPartition(*place)])
    finally:
        consumer.close()
    return found


def _age(record: Record | None, now: float) -> float | None:
    at = None if record is None else milliseconds(record.timestamp)
    return None if at is None else round(max(0.0, now - at / 1000), 1)


def _due(record: Record | None) -> datetime | None:
    try:
        at = 0 if record is None else envelope.due(record)
    except InvalidEvent:
        return None  # it becomes a dead letter, and is due at once
    return time_of(at) if at else None


def _dead(
    source: ConsumerSource, there: Collection[str], failures: list[str]
) -> tuple[int | None, bool]:
    """Return how many dead letters stand, and whether these are all."""
    topic = source.retries.dead_letter_topic
    if topic is None:
        return None, True
    if topic not in there:
        failures.append(f"no topic {topic!r} that we may see, for dead letters")
        return None, True
    try:
        which = Which(groups=(source.group, None))
        found = newest(DeadTopic(source.kafka, topic), which, _MOST_DEAD)
    except DovecoteError as error:
        failures.append(str(error))
        return None, True
    return len(found.found), found.whole and len(found.found) < _MOST_DEAD


def _ready(url: str) -> ReadyAnswer:
    """Ask a process whether it is ready."""
    try:
        return ReadyAnswer(url, ready=True, said=_text(_asked(Request(f"{url}/readyz"))))  # noqa: S310  # http or https, as the settings require
    except HTTPError as error:
        said = _text(body_of(error, _MOST_SAID)) or f"it answers {error.code}"
        return ReadyAnswer(url, ready=False, said=said)
    except OSError as error:
        return ReadyAnswer(url, ready=False, said=f"it does not answer ({why(error)})")


def _asked(request: Request) -> bytes:
    """Ask once more if there is no answer in time: a busy process may be late for a moment."""
    try:
        return ask(request, _READY_SECONDS, _MOST_SAID)
    except OSError as error:
        if not isinstance(getattr(error, "reason", error), TimeoutError):
            raise
        return ask(request, _READY_SECONDS, _MOST_SAID)


def _text(body: bytes) -> str:
    return body.decode(errors="replace").strip()


def at(time_: datetime | None) -> str:
    """Return a time as text."""
    return "" if time_ is None else time_.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
