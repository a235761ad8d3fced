"""Ask Kafka how far consumer groups have come, and which offsets they step over."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from dedup.kafka.topic_ids import TopicIds
from dedup.rules.unread import Place, covering
from dedup.unread.notes import notes_of
from dovecote.observe.find.rules.facts import Reach, Taker
from dovecote.observe.find.rules.reach import reach
from dovecote.observe.find.searching import committed
from dovecote.process.topics import topics
from outbox.kafka import kafka_logger
from outbox.tokens.source import client_of, for_client

_log = kafka_logger("dovecote.observe.kafka")
_SECONDS = 5.0


class GroupAnswer(NamedTuple):
    """The state of records for a group."""

    reaches: dict[Place, Reach]
    skips: dict[Place, str]


def ask(
    kafka: Mapping[str, str],
    reader: Taker,
    places: Collection[Place],
    ids: Mapping[str, str],
) -> GroupAnswer:
    """
    Return how a group's commits lie to records; `ids`: Kafka's ids of topics.

    Raises:
        KafkaException: Kafka does not say.
        DovecoteError: the notes of what is stepped over cannot be read.
    """
    known = committed(kafka, reader.group, {each[:2] for each in places})
    anything = any(offset >= 0 for offset, _ in known.values())
    members = _members(kafka, reader.group, has_committed=anything)
    found = {
        place: reach(
            place.offset, *known[place[:2]], topic_id=ids.get(place.topic), members=members
        )
        for place in places
    }
    notes = notes_of(kafka, reader.group, {place: ids.get(place.topic) for place in places})
    skips: dict[Place, str] = {}
    for place in places:
        note = covering(notes, place, ids.get(place.topic))
        if note is not None and found[place].completed:
            skips[place] = f"{note.by} decided it at {note.at}: {note.why}; {note.error}"
    return GroupAnswer(found, skips)


def topics_of(kafka: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """
    Return the topics of a cluster, and Kafka's ids of them.

    Raises:
        KafkaException: Kafka does not answer.
    """
    there = [each for each in topics(kafka, timeout=5.0) if not each.startswith("__")]
    return there, topic_ids(kafka, there)


def topic_ids(kafka: Mapping[str, str], topics: Sequence[str]) -> dict[str, str]:
    """
    Return Kafka's ids of topics, where there are some.

    Raises:
        KafkaException: Kafka does not answer.
    """
    known = TopicIds(kafka)
    return known.told(known.ask(topics))


def _members(kafka: Mapping[str, str], group: str, *, has_committed: bool) -> int | None:
    """Return the number of a group's members; None: Kafka does not say."""
    admin = client_of(AdminClient, for_client(kafka), _log)
    try:
        answer = admin.describe_consumer_groups([group], request_timeout=_SECONDS)[group]
        found = answer.result(_SECONDS + 1)
    except (KafkaException, TimeoutError) as error:
        _log.debug("the members of group %s are not known: %s", group, error)
        return None
    if found.state in {ConsumerGroupState.UNKNOWN, ConsumerGroupState.DEAD} and has_committed:
        # A group of the newer protocol looks to an older client as if there were none.
        return None
    return len(found.members)
