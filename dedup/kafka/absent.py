"""Topics that were asked for and cannot be read: Kafka says so once, and is asked from then on."""

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException

_CANNOT_BE_READ = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
_PAUSE_SECONDS = 2.0
# The poll thread waits for it, and other topics with it.
_ANSWER_SECONDS = 0.5

TopicMetadata: TypeAlias = Any
"""That of confluent_kafka, which does not say its type."""


class Absent:
    """
    The poll thread's alone.

    `partitions` are explicit ones: of one that is not there Kafka says nothing.
    """

    def __init__(
        self, client: Consumer, partitions: Mapping[str, Collection[int]] | None = None
    ) -> None:
        self._client, self._partitions = client, partitions or {}
        self._found = dict.fromkeys(self._partitions, "")
        """Topics to be asked for, and why they cannot be read; empty: nobody has said so yet."""
        self._asked = 0.0

    def noticed(self, error: KafkaError, topic: str | None) -> None:
        """Take what the client says in the place of a record of `topic`."""
        if topic and error.code() in _CANNOT_BE_READ:
            self._found[topic] = error.str()

    def told(self, now: float) -> str:
        """Return which cannot be read, and why; asks for them again if it is time to."""
        if self._found and now - self._asked >= _PAUSE_SECONDS:
            self._asked = now
            self._look()
        return "; ".join(
            f"topic {topic!r} cannot be read: {why}"
            for topic, why in sorted(self._found.items())
            if why
        )

    def _look(self) -> None:
        for topic in list(self._found):
            try:
                told = self._client.list_topics(topic, timeout=_ANSWER_SECONDS)
            except KafkaException:
                return  # who does not answer has not said otherwise, and is not asked for the rest
            if why := self._why(topic, told.topics.get(topic)):
                self._found[topic] = why
            else:
                del self._found[topic]

    def _why(self, topic: str, found: TopicMetadata | None) -> str:
        if found is None:
            return ""
        if found.error is not None:
            why: str = found.error.str()
            return why
        missing = set(self._partitions.get(topic, ())) - found.partitions.keys()
        return f"it has no partition {min(missing)}" if missing else ""
