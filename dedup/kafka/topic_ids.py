"""Ask Kafka for the ids of topics: a topic that was deleted and made anew has another one."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from dedup.rules.lanes.assigned import Assigned
from outbox import forks
from outbox.errors import NoClient, NoToken
from outbox.kafka import kafka_logger, topic_id
from outbox.tokens.source import client_of, for_client

_log = logging.getLogger("dovecote.consumer")
_client_log = kafka_logger("dovecote.consumer.kafka")
_ANSWER_SECONDS = 2.0
_LONGEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
# How long a topic that was made anew may be taken for the one before.
_LOOK_SECONDS = 10.0
_NOT_THERE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for the descriptions of topics."""

    answers: Mapping[str, "Future[Any]"] = field(default_factory=dict)
    client: AdminClient | None = None
    """Kept until the answers are there: questions end with the client that was asked."""

    @property
    def is_answered(self) -> bool:
        return all(answer.done() for answer in self.answers.values())


_shared: "WeakValueDictionary[frozenset[tuple[str, str]], TopicIds]" = WeakValueDictionary()


class TopicIds:
    """One cluster's; thread-safe. The client is made at the first question, and kept."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = dict(kafka)
        self._admin: AdminClient | None = None
        self._lock = threading.Lock()
        forks.know(self)

    def forked(self) -> None:
        """Leave the parent process what belongs to it."""
        forks.leave(self._admin)
        self._admin, self._lock = None, threading.Lock()

    def ask(self, topics: Iterable[str]) -> Asked:
        """
        Ask for the ids of topics, and return at once.

        Raises:
            NoClient, NoToken: there can be no client now.
        """
        names = sorted(set(topics))
        if not names:
            return Asked()
        with self._lock:
            if self._admin is None:
                given = {**for_client(self._kafka), "log_level": 0}
                self._admin = client_of(AdminClient, given, _client_log)
            admin = self._admin
        wanted = TopicCollection(names)
        return Asked(admin.describe_topics(wanted, request_timeout=_ANSWER_SECONDS), admin)

    def told(self, asked: Asked) -> dict[str, str]:
        """
        Return the ids of those topics that are there and have one: a broker before 2.8 has none.

        Raises:
            KafkaException: Kafka does not answer.
        """
        found: dict[str, str] = {}
        for name, answer in asked.answers.items():
            try:
                id_ = topic_id(answer.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() in _NOT_THERE:
                    continue
                with self._lock:
                    # A secret may have been replaced since it was made. Somebody else who asked
                    # the same one may have made another meanwhile.
                    if self._admin is asked.client:
                        self._admin = None
                raise
            if id_ is not None:
                found[name] = id_
        return found


def topic_ids(kafka: Mapping[str, str]) -> TopicIds:
    """Return the one that all consumers of this process share for a cluster and its settings."""
    return _shared.setdefault(frozenset(kafka.items()), TopicIds(kafka))


class Topics:
    """The topics of one consumer; used by its poll thread only."""

    def __init__(self, topics: TopicIds, *, every: float) -> None:
        """Look for topics that were made anew `every` so many seconds, or more often."""
        self._topics = topics
        self._every = min(every, _LOOK_SECONDS)
        self._next = 0.0
        self._known: list[Assigned] = []
        self._asked: Asked | None = None

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics; without an answer, their names stand for them."""
        names, deadline = set(names), time.monotonic() + _LONGEST_SECONDS
        while True:
            try:
                return self._topics.told(self._topics.ask(names))
            except (KafkaException, NoClient, NoToken) as error:
                if time.monotonic() > deadline:
                    _log.warning(
                        "the ids of topics are not known, and their names stand for them until "
                        "partitions are assigned again: %s",
                        error.args[0].str() if isinstance(error, KafkaException) else error,
                    )
                    return {}
                time.sleep(_PAUSE_SECONDS)

    def made_anew(self, partitions: Iterable[Assigned]) -> dict[Assigned, str]:
        """
        Return which partitions are of topics that were made anew since, with the new ids.

        The answer is that to an earlier question: nobody waits for Kafka here.
        """
        if self._asked is None:
            if (now := time.monotonic()) >= self._next:
                self._next = now + self._every
                self._known = [each for each in partitions if each.offsets.topic_id is not None]
                if self._known:
                    with suppress(NoClient, NoToken):  # asked again at its time
                        self._asked = self._topics.ask(each.stretch.topic for each in self._known)
            return {}
        if not self._asked.is_answered:
            return {}
        asked, self._asked = self._asked, None
        try:
            ids = self._topics.told(asked)
        except KafkaException:
            return {}  # asked again at its time
        there = set(partitions)
        return {
            each: id_
            for each in self._known
            # A partition that was assigned since then may know more than the answer.
            if each in there
            and (id_ := ids.get(each.stretch.topic, "")) not in {"", each.offsets.topic_id}
        }
