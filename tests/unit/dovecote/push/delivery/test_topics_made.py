"""The topics that a subscription needs are made when it begins."""

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from dedup.retries.held_states import Forgetful
from dovecote.push.delivery import reading
from dovecote.push.delivery.reading import Reading, make_topics
from dovecote.push.metrics import Metrics
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.rules.subscription.subscription import subscription
from outbox.errors import DovecoteError
from tests.support.waiting import patient

HOOK = subscription(
    {"id": "hook", "topics": ["orders"], "endpoint": {"url": "https://a.example/hook"}}
)
OWN = {HOOK.dead_letters, HOOK.requeued}


class Admin:
    """A client of a cluster that has some topics, and answers a creation with a code."""

    def __init__(self, *there: str, code: int | None = None) -> None:
        self._there, self._code = there, code
        self.made: set[str] = set()

    def list_topics(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(topics=dict.fromkeys(self._there))

    def create_topics(
        self, topics: Sequence[NewTopic], **_: object
    ) -> Mapping[str, "Future[Any]"]:
        answers: dict[str, Future[Any]] = {}
        for each in topics:
            self.made.add(each.topic)
            answer: Future[Any] = Future()
            answers[each.topic] = answer
            if self._code is None:
                answer.set_result(None)
            else:
                answer.set_exception(KafkaException(KafkaError(self._code)))
        return answers


def told(admin: Admin, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING):
        make_topics(admin, HOOK)  # type: ignore[arg-type]  # as far as it is used
    return caplog.messages


def test_missing_topics_are_made_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    admin = Admin(HOOK.dead_letters)
    assert told(admin, caplog) == []
    assert admin.made == {HOOK.requeued}
    admin = Admin(*OWN)
    assert told(admin, caplog) == []
    assert admin.made == set()


def test_another_process_may_make_them_at_the_same_time(caplog: pytest.LogCaptureFixture) -> None:
    admin = Admin(code=KafkaError.TOPIC_ALREADY_EXISTS)
    assert told(admin, caplog) == []
    assert admin.made == OWN


def test_a_topic_that_cannot_be_made_is_a_warning_with_the_right_that_it_needs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = told(Admin(code=KafkaError.TOPIC_AUTHORIZATION_FAILED), caplog)
    assert len(said) == 2
    assert all("cannot be made" in each and "Create" in each for each in said)


def test_a_broker_that_is_away_keeps_no_subscription_of_another_one_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_back, asked = threading.Event(), threading.Event()

    class Client:
        """A client of one of two brokers; the subscription ends with its answer."""

        def __init__(self, name: str) -> None:
            self._name = name

        def list_topics(self, **_: object) -> None:
            if self._name == "away":
                is_back.wait(patient(60))
            else:
                asked.set()
            raise DovecoteError(self._name)

    monkeypatch.setattr(reading, "client_of", lambda _, kafka, __: Client(kafka["client.id"]))
    with ThreadPoolExecutor(31) as threads:
        ends = [threads.submit(_reading(f"a{number}", "away").run) for number in range(30)]
        ends.append(threads.submit(_reading("b", "well").run))
        try:
            assert asked.wait(patient(5))
        finally:
            is_back.set()
    said = [str(each.exception()) for each in ends]
    assert said == ["away"] * 30 + ["well"]


def _reading(id_: str, broker: str) -> Reading:
    found = subscription({**HOOK.model_dump(mode="json"), "id": id_, "broker": broker})
    return Reading(
        found,
        {"bootstrap.servers": "127.0.0.1:1", "client.id": broker},
        book=Forgotten(),
        numbers=Metrics().of(id_),
        states=nullcontext(Forgetful()),
    )


class Forgotten:
    """A book that keeps nothing."""

    def attempted(self, attempt: AttemptReport) -> None:
        """Forget it."""

    def disable(self, id_: str, url: str, reason: str) -> None:
        """Forget it."""
