"""The auditor does not take a partition without an answer for one where nothing is."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from dovecote.audit.away import Away
from dovecote.audit.kafka import Topics


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
