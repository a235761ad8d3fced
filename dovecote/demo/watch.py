"""Watch the pipeline from outside while it runs: count what has arrived in each topic."""

import json
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its documentation says to take it from there
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

_ADMIN_SECONDS = 10.0
_BATCH = 1000
_ROUND = "dovecote_round"
_POLL_SECONDS = 0.1


class Arrivals:
    """Notes which records a `read_committed` consumer of the topics has seen."""

    def __init__(self, bootstrap: str, partitions: Mapping[str, int]) -> None:
        self._bootstrap, self._partitions = bootstrap, partitions
        self._offsets: dict[str, dict[int, list[int]]] = {
            topic: {partition: [] for partition in range(count)}
            for topic, count in partitions.items()
        }
        self._came_back: Counter[str] = Counter()
        self.error: Exception | None = None
        """Why it ended by itself."""

        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def count(self, topic: str) -> int:
        """Return how many records of `topic` were seen."""
        return sum(map(len, self._offsets[topic].values()))

    def fresh(self, topic: str) -> int:
        """Return how many records of `topic` were seen that did not come from a retry."""
        return self.count(topic) - self._came_back[topic]

    def count_before(self, topic: str, ends: Mapping[int, int]) -> int:
        """Return how many records of `topic` were seen before the offsets `ends`."""
        seen = self._offsets[topic]
        return sum(bisect_left(seen[partition], end) for partition, end in ends.items())

    def _run(self) -> None:
        try:
            with closing(self._consumer()) as consumer:
                while not self._stop.is_set():
                    self._note(consumer)
        except KafkaException as error:
            self.error = error

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "demo-view",  # the client needs a name; nothing is committed under it
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # A spectator must not cost the broker much: few fetches, large ones.
                "fetch.min.bytes": 1_000_000,
                "fetch.wait.max.ms": 200,
            }
        )
        consumer.assign(
            [
                TopicPartition(topic, p, 0)
                for topic, n in self._partitions.items()
                for p in range(n)
            ]
        )
        return consumer

    def _note(self, consumer: Consumer) -> None:
        for message in consumer.consume(_BATCH, _POLL_SECONDS):
            error = message.error()
            if error is None:
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                if _ROUND in dict(message.headers() or ()):
                    self._came_back[topic] += 1  # type: ignore[index]  # likewise
                self._offsets[topic][partition].append(offset)  # type: ignore[index, arg-type]  # what was consumed has a place
            elif not error.retriable():
                raise KafkaException(error)


# The broker may not know yet that it leads a new topic.
_NOT_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def _is_not_yet(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _NOT_YET


class Ends:
    """Finds the ends of a topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._places = [TopicPartition(topic, p) for p in range(partitions)]

    def stable(self) -> dict[int, int]:
        """Return, by partition, the offset up to which a `read_committed` consumer can read."""
        return self._latest(IsolationLevel.READ_COMMITTED)

    def has_open_transaction(self) -> bool:
        """Return whether the topic has records of a transaction that is not committed yet."""
        return self._latest(IsolationLevel.READ_UNCOMMITTED) != self.stable()

    @retry(
        retry=retry_if_exception(_is_not_yet),
        stop=stop_after_delay(_ADMIN_SECONDS),
        wait=wait_fixed(0.1),
        reraise=True,
    )
    def _latest(self, isolation: IsolationLevel) -> dict[int, int]:
        asked = self._admin.list_offsets(
            {place: OffsetSpec.latest() for place in self._places},  # type: ignore[no-untyped-call]  # the library types only half of it
            isolation_level=isolation,
            request_timeout=_ADMIN_SECONDS,
        )
        return {
            place.partition: answer.result(_ADMIN_SECONDS).offset
            for place, answer in asked.items()
        }


def batched(checkpoint: Path, topic: str) -> dict[int, int]:
    """
    Return, by partition, the offset up to which the job's finished batches have read `topic`.
    """
    done = [
        int(file.name) for file in (checkpoint / "commits").glob("[0-9]*") if file.name.isdigit()
    ]
    if not done:
        return {}
    _, _, source = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[:3]
    read = json.loads(source)[topic]  # the topic's id is beside its partitions
    return {int(partition): end for partition, end in read.items() if partition.isdigit()}
