"""A job says which right it lacks if Kafka takes no commit of its group."""

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_jobs.sink import group
from spark_jobs.sink.group import GroupOffsets


class Refusing:
    """A consumer whose commits raise, as the client's do if one partition is refused."""

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self, _: float) -> None: ...

    def close(self) -> None: ...

    def commit(self, **_: object) -> None:
        raise KafkaException(KafkaError(self._code))


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "`Read` on topic 'orders'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "`Read` on group 'dovecote.q'"),
    ],
)
def test_the_right_is_named_that_a_commit_lacks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, code: int, named: str
) -> None:
    monkeypatch.setattr(group, "client_of", lambda *_: Refusing(code))
    told: list[str] = []
    offsets = GroupOffsets({}, "q", told.append)
    with caplog.at_level(logging.WARNING):
        offsets.report({"orders": {0: 7}})
        offsets.close()
    assert f"grant this user {named}, see docs/security.md" in caplog.text
    assert "failed" in told
