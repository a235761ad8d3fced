"""Have a producer know the brokers before it is asked for a transaction."""

from typing import Protocol


class Client(Protocol):
    """A producer of librdkafka."""

    def list_topics(self, topic: str, timeout: float, /) -> object: ...


def reach(producer: Client, topic: str, timeout: float) -> None:
    """
    Wait until `producer` is connected to a broker of the cluster; twice `timeout` seconds at most.

    librdkafka that knows no broker yet asks for the coordinator of its transactions again after
    500 ms only. The first answer may come by the connection it bootstraps with, which it then
    gives up; the second comes by one that stays.

    Raises:
        KafkaException: no broker answers in time.
    """
    for _ in range(2):
        producer.list_topics(topic, timeout)
