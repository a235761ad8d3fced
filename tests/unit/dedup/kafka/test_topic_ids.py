"""One client asks for the ids of topics on behalf of all consumers of a process."""

import gc
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid

from dedup.kafka.topic_ids import TopicIds

made: WeakSet["Client"] = WeakSet()


class Client:
    """A client that ends like librdkafka's: what is asked of it fails when nobody has it."""

    def __init__(self, *_: object, **__: object) -> None:
        self.asked: list[Future[Any]] = []
        made.add(self)

    def describe_topics(self, _: TopicCollection, **__: object) -> Mapping[str, "Future[Any]"]:
        answer: Future[Any] = Future()
        self.asked.append(answer)
        return {"orders": answer}

    def __del__(self) -> None:
        for each in self.asked:
            if not each.done():
                each.set_exception(KafkaException(KafkaError(KafkaError._DESTROY)))


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> TopicIds:
    monkeypatch.setattr("dedup.kafka.topic_ids.AdminClient", Client)
    made.clear()
    return TopicIds({})


def fail(answer: "Future[Any]") -> None:
    answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))


def test_a_question_that_fails_takes_nobody_elses_answer_with_it(topics: TopicIds) -> None:
    first, second = topics.ask(["orders"]), topics.ask(["orders"])
    fail(first.answers["orders"])
    with pytest.raises(KafkaException):
        topics.told(first)
    del first
    gc.collect()
    assert not second.is_answered
    second.answers["orders"].set_result(SimpleNamespace(topic_id=Uuid(1, 2)))
    assert topics.told(second).keys() == {"orders"}


def test_questions_that_fail_together_make_one_new_client(topics: TopicIds) -> None:
    asked = [topics.ask(["orders"]) for _ in range(3)]
    newer = []
    for each in asked:
        fail(each.answers["orders"])
        with pytest.raises(KafkaException):
            topics.told(each)
        newer.append(topics.ask(["orders"]))
    assert len({id(each.client) for each in newer}) == 1
    assert len(made) == 2


def test_a_client_whose_questions_are_all_answered_is_let_go(topics: TopicIds) -> None:
    asked = topics.ask(["orders"])
    fail(asked.answers["orders"])
    with pytest.raises(KafkaException):
        topics.told(asked)
    del asked
    gc.collect()
    assert not made


def test_no_topic_is_no_question(topics: TopicIds) -> None:
    assert topics.ask([]).is_answered
    assert not made
