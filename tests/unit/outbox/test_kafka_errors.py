"""An answer of a Kafka client counts only for the partitions that it is about."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from outbox.kafka_errors import require_answers


def test_an_answer_without_one_partition_is_no_answer() -> None:
    known: Any = SimpleNamespace(offset=7, error=None)
    moved = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
    unknown: Any = SimpleNamespace(offset=-1, error=moved)

    assert require_answers([known]) == [known]
    with pytest.raises(KafkaException, match="NOT_LEADER"):
        require_answers([known, unknown])
