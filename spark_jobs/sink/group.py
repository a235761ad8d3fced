"""
Report a query's position to ordinary Kafka tools: commit its offsets to a consumer group.

Nobody reads them back: a query's checkpoint and its markers alone decide where it goes on. A
failed commit is reported and tried again, and holds nothing up.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition

from outbox.errors import NoClient, NoToken
from outbox.kafka import kafka_logger
from outbox.kafka_errors import read_of_any, require_answers, right, told
from outbox.tokens.source import client_of
from spark_jobs.sink import kafka_options

Ends: TypeAlias = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""

_log = logging.getLogger("dovecote.spark")
_client_log = kafka_logger("dovecote.spark.librdkafka.group")
_RETRY_SECONDS = 5.0
_REST_SECONDS = 1.0
# By default, a broker forgets a group to which nothing was committed for a week.
_AGAIN_SECONDS = 3_600.0
_END_SECONDS = 2.0


def name(query: str) -> str:
    """Return the consumer group of a query."""
    return f"dovecote.{query}"


class GroupOffsets:
    """Commits the newest offsets that it was given, in a thread of its own."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        query: str,
        committed: Callable[[Literal["ok", "failed"]], None],
    ) -> None:
        self._kafka, self._group, self._committed = kafka, name(query), committed
        self._changed = threading.Condition()
        self._ends: Ends = {}
        self._is_new = self._is_ending = False
        self._reason = ""
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name="group offsets", daemon=True)
        self._thread.start()

    def report(self, ends: Ends) -> None:
        """Commit `ends` soon; they replace earlier ones that are not committed yet."""
        with self._changed:
            if ends and ends != self._ends:
                self._ends, self._is_new = ends, True
                self._changed.notify()

    def close(self) -> None:
        """Commit the latest offsets, if Kafka takes them now."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        pause = _AGAIN_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_new or self._is_ending, pause)
                ends, is_ending = self._ends, self._is_ending
                was_new, self._is_new = self._is_new, False
            is_done = not ends or (is_ending and not was_new) or self._commit(ends)
            if is_ending:
                self._drop()
                return
            with self._changed:  # many small batches share one commit
                self._changed.wait_for(lambda: self._is_ending, _REST_SECONDS)
            pause = _AGAIN_SECONDS if is_done else _RETRY_SECONDS

    def _commit(self, ends: Ends) -> bool:
        offsets = [
            TopicPartition(topic, partition, offset)
            for topic, partitions in ends.items()
            for partition, offset in partitions.items()
        ]
        try:
            if self._consumer is None:
                self._consumer = client_of(Consumer, self._configuration(), _client_log)
            self._consumer.poll(0)  # its events go to its log
            require_answers(self._consumer.commit(offsets=offsets, asynchronous=False) or ())
        except (NoClient, NoToken) as error:
            reason = str(error)
        except KafkaException as error:
            # A client that raises does not say which topic is refused.
            said, *topics = error.args
            group = right("Read", "group", self._group)
            reason = told(said, group, *read_of_any(topics or ends))
        else:
            self._reason = ""
            self._committed("ok")
            return True
        self._failed(reason)
        self._drop()
        return False

    def _configuration(self) -> dict[str, str | int | float | bool]:
        return {
            **kafka_options.connected(self._kafka),
            "group.id": self._group,
            "enable.auto.commit": False,
        }

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _failed(self, reason: str) -> None:
        self._committed("failed")
        if reason != self._reason:
            _log.warning(
                "offsets were not committed to the consumer group %s (%s): tools that look at "
                "groups show an old lag; the job goes on as ever",
                self._group,
                reason,
            )
        self._reason = reason
