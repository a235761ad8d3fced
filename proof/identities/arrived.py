"""Read which events a topic has, and when they arrived."""

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from outbox.kafka import headers_of

_ID = "ce_id"


def arrived(bootstrap: str, topic: str) -> list[tuple[float, str]]:
    """
    Return times and ids of all committed events of a topic.

    Raises:
        KafkaException: the broker cannot be read.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "proof",  # required by the client, never used
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left, found = set(partitions), []
        while left:
            if (message := consumer.poll(10)) is None:
                continue
            error = message.error()
            if error is None:
                id_ = dict(headers_of(message)).get(_ID) or b""
                found.append((message.timestamp()[1] / 1000, id_.decode()))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                left.discard(message.partition() or 0)
            else:
                raise KafkaException(error)
        return found
    finally:
        consumer.close()
