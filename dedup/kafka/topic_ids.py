"""Ask Kafka for the ids of topics: a topic that was deleted and made anew has another one."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future
from weakref import WeakValueDictionary

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from dedup.rules.lanes.assigned import Assigned
from outbox.kafka import kafka_logger, topic_id
from outbox.secrets import fresh_all

_log = logging.getLogger("dovecote.consumer")
_client_log = kafka_logger("dovecote.consumer.kafka")
_ANSWER_SECONDS = 2.0
_LONGEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
# How long a topic that was made anew may be taken for the one before.
_LOOK_SECONDS = 10.0

_shared: "WeakValueDictionary[frozenset[tuple[str, str]], TopicIds]" = WeakValueDictionary()
_lock = threading.Lock()


class TopicIds:
    """One cluster's; thread-safe. The client is made at the first question, and kept."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = dict(kafka)
        self._admin: AdminClient | None = None
        self._lock = threading.Lock()

    def of(self, topics: Iterable[str]) -> dict[str, str]:
        """
        Return the ids of those topics that are there and have one: a broker before 2.8 has none.

        Raises:
            KafkaException: Kafka does not answer.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        with self._lock:
            try:
                return self._asked(names)
            except KafkaException:
                self._admin = None  # the next one has a secret that may have been replaced since
                raise

    def _asked(self, names: list[str]) -> dict[str, str]:
        if self._admin is None:
            self._admin = AdminClient(
                {**fresh_all(self._kafka), "log_level": 0}, logger=_client_log
            )
        # librdkafka cannot read a description by a broker that is shutting down, and ends the
        # process: so make sure that one answers.
        self._admin.list_topics(names[0], timeout=_ANSWER_SECONDS)
        told = self._admin.describe_topics(TopicCollection(names), request_timeout=_ANSWER_SECONDS)
        found: dict[str, str] = {}
        for name, answer in told.items():
            try:
                id_ = topic_id(answer.result().topic_id)
            except KafkaException as error:
                if error.args[0].retriable():
                    raise
                continue  # it is not there, or may not be seen
            if id_ is not None:
                found[name] = id_
        return found


def topic_ids(kafka: Mapping[str, str]) -> TopicIds:
    """Return the one that all consumers of this process share for a cluster and its settings."""
    with _lock:
        key = frozenset(kafka.items())
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = TopicIds(kafka)
        return found


class Topics:
    """The topics of one consumer; used by its poll thread only."""

    def __init__(self, topics: TopicIds, threads: Executor, *, every: float) -> None:
        """Look for topics that were made anew `every` so many seconds, or more often."""
        self._topics, self._threads = topics, threads
        self._every = min(every, _LOOK_SECONDS)
        self._next = 0.0
        self._asked: tuple[list[Assigned], Future[dict[str, str]]] | None = None

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics; without an answer, their names stand for them."""
        names, deadline = set(names), time.monotonic() + _LONGEST_SECONDS
        while True:
            try:
                return self._topics.of(names)
            except KafkaException as error:
                if time.monotonic() > deadline:
                    _log.warning(
                        "the ids of topics are not known, and their names stand for them until "
                        "partitions are assigned again: %s",
                        error.args[0].str(),
                    )
                    return {}
                time.sleep(_PAUSE_SECONDS)

    def made_anew(self, partitions: Iterable[Assigned]) -> dict[Assigned, str]:
        """
        Return which partitions are of topics that were made anew since, with the new ids.

        The answer is that to an earlier question: nobody waits for Kafka here.
        """
        if self._asked is None:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + self._every
                self._ask([each for each in partitions if each.offsets.topic_id is not None])
            return {}
        known, asked = self._asked
        if not asked.done():
            return {}
        self._asked = None
        if asked.exception() is not None:
            return {}
        ids, there = asked.result(), set(partitions)
        return {
            each: id_
            for each in known
            # A partition that was assigned since then may know more than the answer.
            if each in there
            and (id_ := ids.get(each.stretch.topic, "")) not in {"", each.offsets.topic_id}
        }

    def _ask(self, known: list[Assigned]) -> None:
        if known:
            names = {each.stretch.topic for each in known}
            self._asked = known, self._threads.submit(self._topics.of, names)
