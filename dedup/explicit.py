"""The partitions of a consumer that shares them with nobody."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from dedup.settings.consumer import ConsumerSettings
from outbox.errors import DovecoteError

_SECONDS = 10.0


def explicit(client: Consumer, settings: ConsumerSettings) -> list[TopicPartition]:
    """
    Return the partitions that the settings name, and all of each topic for which they name none.

    Raises:
        DovecoteError: there is no such topic, or Kafka does not answer.
    """
    named = settings.partitions or {}
    found = [TopicPartition(topic, number) for topic, all_ in named.items() for number in all_]
    for topic in settings.topics_read():
        if topic not in named:
            found += [TopicPartition(topic, number) for number in _numbers(client, topic)]
    return found


def _numbers(client: Consumer, topic: str) -> list[int]:
    try:
        told = client.list_topics(topic, timeout=_SECONDS).topics[topic]
    except KafkaException as error:
        msg = f"the partitions of topic {topic!r} are not known: {error.args[0].str()}"
        raise DovecoteError(msg) from error
    if told.error is not None:
        msg = f"topic {topic!r}: {told.error.str()}; create it, or do not name it"
        raise DovecoteError(msg)
    return sorted(told.partitions)
