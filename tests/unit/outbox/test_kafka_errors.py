"""Errors of a Kafka client: of one partition, and of a client that has broken."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from outbox.kafka_errors import (
    CLIENT_ERRORS,
    read_of_any,
    refusal_of,
    require_answers,
    right,
    said_by_client,
    told,
)

LOST = SystemError(
    "<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception"
)
FENCED = KafkaError(KafkaError._FENCED)


def test_an_answer_without_one_partition_is_no_answer() -> None:
    known: Any = SimpleNamespace(topic="orders", offset=7, error=None)
    moved = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
    unknown: Any = SimpleNamespace(topic="refunds", offset=-1, error=moved)

    assert require_answers([known]) == [known]
    with pytest.raises(KafkaException) as raised:
        require_answers([known, unknown])
    assert raised.value.args == (moved, "refunds")


@pytest.mark.parametrize(
    ("code", "granted"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "`Read` on topic 'orders'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "`Read` on group 'shop'"),
        # No right of this kind is known to be needed, so all are told.
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            "`Read` on group 'shop' and `Read` on topic 'orders'",
        ),
        (KafkaError.NOT_LEADER_FOR_PARTITION, ""),
    ],
)
def test_the_right_is_told_that_an_error_is_about(code: int, granted: str) -> None:
    error = KafkaError(code)
    advice = f"; grant this user {granted}, see docs/security.md" if granted else ""
    needed = right("Read", "group", "shop"), right("Read", "topic", "orders")
    assert told(error, *needed) == error.str() + advice


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except type(error) as found:
        return found


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (raised(KafkaException(FENCED)), KafkaError._FENCED),
        # Python takes the callback for broken in which the error came.
        (
            raised(SystemError("a result with an error"), KafkaException(FENCED)),
            KafkaError._FENCED,
        ),
        # The callback handled an error of its own, and the client's is gone.
        (LOST, KafkaError._FATAL),
        (raised(KafkaException(KafkaError(KafkaError._FATAL))), KafkaError._FATAL),
    ],
)
def test_a_broken_client_is_understood(error: Exception, said: int) -> None:
    assert isinstance(error, CLIENT_ERRORS)
    found, later = said_by_client(error), said_by_client(error, lambda: FENCED)
    assert found is not None
    assert found.code() == said
    assert later is not None
    assert later.code() == KafkaError._FENCED


@pytest.mark.parametrize("error", [ValueError("7"), SystemError("something else"), None])
def test_other_errors_are_not_the_clients(error: Exception | None) -> None:
    assert said_by_client(error, lambda: FENCED) is None


def test_a_refusal_is_what_the_client_says() -> None:
    def refused() -> None:
        raise KafkaException(FENCED)

    found = refusal_of(refused)
    assert found is not None
    assert found.code() == KafkaError._FENCED
    assert refusal_of(list) is None


@pytest.mark.parametrize(
    ("topics", "named"),
    [
        ([], []),
        (["a"], ["`Read` on topic 'a'"]),
        (["a", "b"], ["`Read` on topic 'a' or 'b'"]),
        (["a", "b", "c", "d"], ["`Read` on topic 'a' or 'b' or 'c' or another one"]),
    ],
)
def test_the_right_to_read_one_of_several_topics_names_few_of_them(
    topics: list[str], named: list[str]
) -> None:
    assert read_of_any(topics) == named
