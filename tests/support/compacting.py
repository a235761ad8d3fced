"""A Kafka that compacts at once, and a topic with gaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.kafka import Kafka
from tests.support.consuming import event, produce
from tests.support.waiting import consume, patient, until


@contextmanager
def compacted(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the address of a Kafka, and a topic in it whose offsets have gaps from compaction."""
    often = {"log.cleaner.backoff.ms": "50", "log.segment.delete.delay.ms": "100"}
    with Kafka(folder, settings=often, temporary=True) as server:
        kafka, name = server.bootstrap, "compacted"
        config = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.001",
            "max.compaction.lag.ms": "100",
        }
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(patient(20))
        numbers = count()

        def is_compacted() -> bool:
            # Kafka compacts only what lies before the newest segment.
            keys = (*range(10), *range(0, 10, 2))
            produce(kafka, *(event(name, f"k{key}", next(numbers)) for key in keys))
            offsets = [message.offset() or 0 for message in consume(kafka, name)]
            return len(offsets) <= offsets[-1] - offsets[0]

        until(is_compacted, within=40, what="gaps")
        yield kafka, name
