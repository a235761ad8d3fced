"""
Whether the group still has this member: its coordinator proves it by taking the member's commit.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dedup.rules.lanes.assigned import Assigned
from dedup.serving.certainty import Certainty
from dovecote.process.rarely import Rarely
from outbox.kafka import number

_log = logging.getLogger("dovecote.consumer")
_rarely = Rarely(_log, most=1)

_PAUSE_SECONDS = 0.1
_OF_TOPIC = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
    KafkaError.INVALID_COMMIT_OFFSET_SIZE,
}
# Kafka's default, and with the protocol `consumer` the broker's own.
_SESSION_MILLISECONDS = 45_000


class FindsPlaces(Protocol):
    """Finds offsets that may be committed, at most one of each topic: `Commits`."""

    def places(self, partitions: Iterable[Assigned]) -> Iterable[TopicPartition]: ...


class Membership:
    """
    Keeps `certainty` up to date while the poll thread comes by without a gap.

    Used by the poll thread only. After a gap of `patience` seconds the member may be out of its
    group without knowing it. From then on, no polled record is begun until the coordinator has
    taken a commit: it takes one only from members of the present generation. `patience` None: the
    partitions are shared with nobody.
    """

    def __init__(
        self, client: Consumer, find: FindsPlaces, certainty: Certainty, *, patience: float | None
    ) -> None:
        self._client, self._find, self._certainty = client, find, certainty
        self._patience = patience
        self._not_before = 0.0

    def beat(self, partitions: Iterable[Assigned]) -> None:
        """Record that the poll thread has come by, with all of the client's events handled."""
        if self._patience is None:
            return
        now = time.monotonic()
        if now > self._certainty.until and not self._is_confirmed_by(now, partitions):
            return
        self._certainty.until = now + self._patience

    def confirmed(self, partitions: Iterable[Assigned]) -> bool | None:
        """
        Return whether the coordinator takes a commit of this member now; waits for its answer.

        A refusal for the topic, which we may not read or which is gone, says nothing of the group:
        an offset of the next topic is tried. None: nothing was polled that could be committed.
        """
        answer: bool | None = None
        for place in self._find.places(partitions):
            answer = self._is_taken(place)
            if answer is not None:
                return answer
            answer = False  # unless another topic proves it
        return answer

    def _is_taken(self, place: TopicPartition) -> bool | None:
        """Return whether the group takes a commit; None: it is refused for its topic."""
        try:
            # Without an id, and if the group is empty, the coordinator might take it as a commit
            # from outside.
            member = self._client.memberid()
            answers = self._client.commit(offsets=[place], asynchronous=False)
            same = bool(member) and self._client.memberid() == member
        except KafkaException as error:
            said = error.args[0]
            _rarely.warning("the group does not take a commit of %s: %s", place.topic, said.str())
            return None if said.code() in _OF_TOPIC else False
        return same and all(each.error is None for each in answers or ())

    def _is_confirmed_by(self, now: float, partitions: Iterable[Assigned]) -> bool:
        if now < self._not_before:
            return False
        confirmed = self.confirmed(partitions)
        if confirmed is False:
            self._not_before = time.monotonic() + _PAUSE_SECONDS
        elif confirmed:
            _log.info("the group still has this member, after a long silence")
        return confirmed is not False


def patience(kafka: Mapping[str, str]) -> float:
    """Return how long a gap may be, so that the heartbeats before and after it are in time."""
    return number(kafka.get("session.timeout.ms", _SESSION_MILLISECONDS)) / 2000
