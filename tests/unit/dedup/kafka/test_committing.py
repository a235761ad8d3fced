"""Commits to a broker that takes less metadata than others do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dedup.kafka.committing import Commits
from dedup.rules.lanes.assigned import Assigned, assigned
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.record import Record

TOO_LARGE = KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)


class Answer(NamedTuple):
    """The client's answer about a partition."""

    topic: str
    partition: int
    offset: int
    error: KafkaError | None


@dataclass
class Client:
    """Refuses all metadata, for each partition or for the whole request."""

    whole: bool
    committed: list[TopicPartition] = field(default_factory=list)
    answer: Callable[..., None] | None = None

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> Any:
        refused = any(each.metadata for each in offsets)
        if not refused:
            self.committed += offsets
        error = TOO_LARGE if refused else None
        answers = [
            Answer(each.topic, each.partition, each.offset, None if self.whole else error)
            for each in offsets
        ]
        if asynchronous:
            assert self.answer is not None
            self.answer(error if self.whole else None, answers)
        elif error is not None and self.whole:
            raise KafkaException(error)
        return answers


def with_a_gap() -> Assigned:
    """Return a partition in which the second record is completed, and the first is not."""
    each = assigned(Lanes[Record]().begin("t", 0), Offsets(5), max_skew=10)
    for offset in (5, 6, 7):
        each.offsets.polled(offset)
    each.completed([6], 2)
    return each


@pytest.mark.parametrize("whole", [False, True], ids=["partition", "request"])
def test_a_broker_that_takes_no_metadata_gets_the_offsets_and_it_is_said_once(
    *, whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(whole)
    commits = Commits(client, every=0, counted=lambda _: None)  # type: ignore[arg-type]  # all that is asked of it
    client.answer = commits.answered
    each = with_a_gap()
    before = each.offsets.position

    commits.tick([each])
    assert client.committed == []
    each.completed([7], 2)
    commits.tick([each])
    commits.finally_([each])

    assert [(told.offset, told.metadata) for told in client.committed] == [(before, "")]
    assert not each.is_skewed()
    assert caplog.text.count("offset.metadata.max.bytes") == 1


@pytest.mark.parametrize("whole", [False, True], ids=["partition", "request"])
def test_the_last_commit_of_a_partition_is_tried_without_metadata_at_once(*, whole: bool) -> None:
    client = Client(whole)
    commits = Commits(client, every=0, counted=lambda _: None)  # type: ignore[arg-type]  # all that is asked of it

    commits.finally_([with_a_gap()])

    assert [(told.offset, told.metadata) for told in client.committed] == [(5, "")]
