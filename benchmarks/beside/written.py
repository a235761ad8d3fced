"""Read what a contender has committed to a topic."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from benchmarks import harness

_BATCH = 5_000


def committed(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yield all records that a `read_committed` consumer sees, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-written",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    left = set(range(harness.PARTITIONS))
    consumer.assign([TopicPartition(topic, each, 0) for each in left])
    while left:
        for message in consumer.consume(_BATCH, 1):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # its only name
                left.discard(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
