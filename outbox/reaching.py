"""Connect a producer to the brokers before its first transaction."""

from typing import Protocol


class Client(Protocol):
    """A producer of librdkafka."""

    def list_topics(self, topic: str, timeout: float, /) -> object: ...


def reach(producer: Client, topic: str, timeout: float) -> None:
    """
    Wait until `producer` is connected to a broker of the cluster; at most twice `timeout` seconds.

    As long as librdkafka knows no broker, it asks for its transaction coordinator again only after
    500 ms. The first answer may come over the bootstrap connection, which librdkafka then gives
    up; the second comes over one that stays.

    Raises:
        KafkaException: no broker answers in time.
    """
    for _ in range(2):
        producer.list_topics(topic, timeout)
