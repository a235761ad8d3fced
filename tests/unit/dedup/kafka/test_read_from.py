"""The client is told where to read after it is resumed: otherwise it may never read."""

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from dedup.kafka.starting import Starts


class Client:
    """Records its calls; it is paused in `orders/0` and `orders/1`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 0), TopicPartition("orders", 1)]

    def __getattr__(self, name: str) -> Any:
        def call(partitions: list[TopicPartition]) -> None:
            self.calls.append((name, [each.partition for each in partitions]))

        return call


@pytest.mark.parametrize("incremental", [False, True])
def test_a_partition_is_resumed_before_it_is_assigned(*, incremental: bool) -> None:
    client: Any = Client()
    starts = Starts(client, incremental=incremental)
    starts.read_from([TopicPartition("orders", 0, 42)], [TopicPartition("orders", 1, 7)])
    changed = (
        [("incremental_unassign", [0]), ("incremental_assign", [0])]
        if incremental
        else [("assign", [0, 1])]
    )
    assert client.calls == [("resume", [0]), *changed]
