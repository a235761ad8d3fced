"""The producer of letters comes and goes, and each record is told of."""

import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException

from dedup.kafka import letters
from dedup.kafka.letters import Letters
from dedup.retries.aside import Outage
from dedup.retries.copies import Copy
from outbox.errors import NoClient, NoToken
from tests.support.waiting import until

COPY = Copy(b"key", b"value", [])


class Broken:
    """A producer that has come to its end."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def poll(self, _: float) -> None:
        if not self.ended.is_set():
            self.ended.set()
            raise KafkaException(KafkaError(KafkaError._FATAL, "it is over", fatal=True))

    def purge(self) -> None:
        """Drop nothing."""

    def produce(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "it is over", fatal=True))


class Well:
    """A producer that delivers at once."""

    def poll(self, _: float) -> None:
        """Have nothing to report."""

    def purge(self) -> None:
        """Drop nothing."""

    def produce(
        self, *_: object, on_delivery: Callable[[None, object], None], **__: object
    ) -> None:
        on_delivery(None, object())


def refuses(error: Exception) -> Callable[..., object]:
    def make(*_: object) -> object:
        raise error

    return make


@pytest.mark.parametrize("error", [NoClient("full"), NoToken("none yet")])
def test_without_a_producer_a_record_waits_and_the_next_one_asks_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "_REST_SECONDS", 0.0)
    with closing(Letters({})) as sender:
        monkeypatch.setattr(letters, "lasting", refuses(error))
        with pytest.raises(Outage, match=str(error)):
            sender.send("dead", COPY)
        monkeypatch.setattr(letters, "lasting", lambda *_: Well())
        sender.send("dead", COPY)


def test_a_token_that_is_late_does_not_end_the_thread_that_hears_of_deliveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(letters, "_REST_SECONDS", 0.0)
    broken = Broken()
    with closing(Letters({})) as sender:
        monkeypatch.setattr(letters, "lasting", lambda *_: broken)
        with pytest.raises(Outage):
            sender.send("dead", COPY)
        until(broken.ended.is_set, within=5, what="the end of the producer is heard")
        monkeypatch.setattr(letters, "lasting", refuses(NoToken("none yet")))

        def refused() -> bool:
            with pytest.raises(Outage) as caught:
                sender.send("dead", COPY)
            return "none yet" in str(caught.value)

        until(refused, within=5, what="that a new one is wanted")
        monkeypatch.setattr(letters, "lasting", lambda *_: Well())
        sender.send("dead", COPY)
        assert sender._poller.is_alive()  # it would report what comes later
