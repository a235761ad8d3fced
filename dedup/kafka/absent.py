"""Topics that were requested but cannot be read: Kafka says so once, so we keep asking."""

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException

from outbox.kafka_errors import right, told

_CANNOT_BE_READ = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
_PAUSE_SECONDS = 2.0
# The poll thread waits for the answer, and other topics with it.
_ANSWER_SECONDS = 0.5

TopicMetadata: TypeAlias = Any
"""The `TopicMetadata` of confluent_kafka, which does not export the type."""


class Absent:
    """
    Used by the poll thread only.

    `partitions` are explicit ones: Kafka does not report one that does not exist.
    """

    def __init__(
        self, client: Consumer, partitions: Mapping[str, Collection[int]] | None = None
    ) -> None:
        self._client, self._partitions = client, partitions or {}
        self._found = dict.fromkeys(self._partitions, "")
        """Topics to ask for, and why they cannot be read; empty: no answer yet."""
        self._refused: dict[str, str] = {}
        """Topics that exist, and of which no record is ours to read."""
        self._asked = 0.0

    @property
    def topics(self) -> set[str]:
        """The topics that it reports, or soon does."""
        return {*self._found, *self._refused}

    def is_of_topic(self, error: KafkaError) -> bool:
        """Return whether an error is of a whole topic, which is asked for until it is there."""
        return error.code() in _CANNOT_BE_READ

    def noticed(self, error: KafkaError, topic: str | None) -> None:
        """Take an error that the client returned in place of a record of `topic`."""
        if topic and error.code() in _CANNOT_BE_READ:
            self._found[topic] = said = _said(error, topic)
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                # A user that may write there sees the topic: no answer about it shows that
                # records are refused.
                self._refused[topic] = said

    def read(self, topic: str) -> None:
        """Take note that the broker has answered a request for records of `topic`."""
        if self._refused:
            self._refused.pop(topic, None)

    def forget(self, but: Collection[str]) -> None:
        """Forget topics that are no longer read."""
        for known in (self._found, self._refused):
            for topic in known.keys() - {*but}:
                del known[topic]

    def report(self, now: float) -> str:
        """Return which cannot be read, and why; ask for them again if it is time to."""
        if self._found and now - self._asked >= _PAUSE_SECONDS:
            self._asked = now
            self._look()
        return "; ".join(
            f"topic {topic!r} cannot be read: {why}"
            for topic, why in sorted({**self._found, **self._refused}.items())
            if why
        )

    def _look(self) -> None:
        for topic in list(self._found):
            try:
                told = self._client.list_topics(topic, timeout=_ANSWER_SECONDS)
            except KafkaException:
                return  # no answer changes nothing, and the rest would get none either
            if why := self._why(topic, told.topics.get(topic)):
                self._found[topic] = why
            else:
                del self._found[topic]

    def _why(self, topic: str, found: TopicMetadata | None) -> str:
        if found is None:
            return ""
        if found.error is not None:
            return _said(found.error, topic)
        missing = set(self._partitions.get(topic, ())) - found.partitions.keys()
        return f"it has no partition {min(missing)}" if missing else ""


def _said(error: KafkaError, topic: str) -> str:
    return told(error, right("Read", "topic", topic))
