"""A writer knows that it is fenced, even if its client has lost the reason."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.writer import Fenced, Writer

KAFKA = {"bootstrap.servers": "127.0.0.1:1"}
LOST = SystemError("<method 'flush'> returned NULL without setting an exception")
FATAL = KafkaException(KafkaError(KafkaError._FATAL))


class Fencing:
    """A producer that another one has fenced; it says so only to those who ask once more."""

    def __init__(self, step: str, error: Exception) -> None:
        self._step, self._error = step, error

    def begin_transaction(self) -> None:
        self._fail("begin")

    def commit_transaction(self, _: float) -> None:
        self._fail("commit")

    def abort_transaction(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

    def produce(self, *_: object, **__: object) -> None:
        """Take it."""

    def flush(self, _: float) -> int:
        return 0

    def poll(self, _: float) -> int:
        return 0

    def _fail(self, step: str) -> None:
        if step == self._step:
            raise self._error


@pytest.mark.parametrize("error", [LOST, FATAL], ids=["lost", "fatal"])
@pytest.mark.parametrize("step", ["begin", "commit"])
def test_a_writer_whose_client_tells_no_reason_knows_that_it_is_fenced(
    monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    monkeypatch.setattr("spark_jobs.sink.writer.Producer", lambda *_, **__: Fencing(step, error))
    topic = MarkerTopic("markers", KAFKA, timeout=1)
    writer = Writer(KAFKA, transactional_id="query.0", partition=0, topic=topic, timeout=1)
    with pytest.raises(Fenced):
        writer._transact([], b"value", b"key")
