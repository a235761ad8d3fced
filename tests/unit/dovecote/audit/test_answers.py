"""The auditor does not take a question without an answer for one where nothing is."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from dovecote.audit.away import Away
from dovecote.audit.continuing import wall
from dovecote.audit.kafka import Topics
from tests.support.audited_apart import Apart, described, partition, record, row


@pytest.mark.parametrize("asked", ["offsets_for_times", "committed"])
def test_a_partition_without_an_answer_is_asked_for_again(asked: str) -> None:
    known = SimpleNamespace(partition=0, offset=17, error=None)
    moved = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
    without = SimpleNamespace(partition=1, offset=-1, error=moved)
    topics, answers = Topics({}), [known]
    topics._consumer = SimpleNamespace(**{asked: lambda *_, **__: answers})  # type: ignore[assignment]

    def ask() -> dict[int, int]:
        if asked == "committed":
            return topics.committed("orders", [0, 1])
        return topics.offsets_at("orders", [0, 1], 1)

    assert ask() == {0: 17}
    answers.append(without)
    with pytest.raises(Away, match="Not leader"):
        ask()


def test_a_partition_whose_end_is_not_known_loses_nothing() -> None:
    apart = Apart(rows=[row(1)], topics=described(partition(first=None, end=None)))
    apart.comparison.topics.positions[0] = {0: 0}
    apart.read()
    assert apart.judge() == []
    assert "orders/0" in apart.comparison.troubles["topic/orders"]
    apart.topics = described(partition(end=0))
    apart.comparison._look()
    assert apart.judge() == ["lost"]
    assert apart.comparison.troubles == {}


def test_a_new_topic_begins_once_all_its_partitions_are_known() -> None:
    apart = Apart(topics=described(partition(0, end=9), partition(1, first=None, end=None)))
    apart.read()
    assert apart.comparison.topics.positions == {}
    apart.topics = described(partition(0, end=9), partition(1, first=5, end=7))
    apart.comparison._look()
    assert apart.comparison.topics.positions == {0: {0: 0, 1: 5}}
    assert apart.comparison.troubles == {}


def test_a_topic_whose_id_is_not_known_is_the_same_one() -> None:
    apart = Apart(records=[record(n) for n in range(3)], topics=described(partition(end=3)))
    apart.read()
    for id_, position in ((None, 3), ("first", 3), ("second", 0)):
        apart.topics = described(partition(end=3), id_=id_)
        apart.comparison._look()
        assert apart.comparison.topics.positions[0] == {0: position}, id_


def test_a_compacted_topic_loses_nothing_while_later_rows_are_not_known() -> None:
    config = {"cleanup.policy": "compact", "retention.ms": "-1"}
    apart = Apart(rows=[row(1)], topics=described(partition(), config=config))

    def away(*_: object) -> bool:
        msg = "outbox/shop: canceling statement due to statement timeout"
        raise Away(msg)

    apart.reader.has_successor = away
    apart.read()
    assert apart.judge() == []
    apart.reader.has_successor = lambda *_: False
    assert apart.judge() == ["lost"]
    assert apart.comparison.troubles == {}


@pytest.mark.parametrize("end", [5, 6])
def test_a_topic_that_was_trimmed_to_its_end_before_the_first_look_has_lost_nothing(
    end: int,
) -> None:
    # The marker of a transaction may be all that is kept.
    trimmed = described(partition(first=5, end=end), config={"retention.ms": "1000"})
    apart = Apart(rows=[row(1)], topics=trimmed)
    apart.read()
    apart.comparison.topics.positions[0] = {0: end}
    assert apart.judge() == []
    assert apart.comparison.matcher.topics[0].counts.unjudged == 1
    apart.rows = [(2, wall() + 120_000, *row(2)[2:])]
    apart.read()
    assert apart.judge() == ["lost"]
