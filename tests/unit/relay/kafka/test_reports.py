"""A publisher knows why its producer broke, even if that is heard late or never."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from outbox import Event
from relay.errors import Fenced, Outage, Unpublishable
from relay.kafka.publisher import IdempotentPublisher, TransactionalPublisher
from relay.rules.row import Row
from tests.support.publishing import row

NOT_REACHED: Any = None
LARGE = row(Event(topic="orders", type="Large", key="k", value="x" * 5_000))


class Producer:
    """A producer that breaks when it is flushed, and reports why at its second poll from then."""

    def __init__(self, given: dict[str, Any], **_: Any) -> None:
        self._reports: Callable[..., None] = given["on_delivery"]
        self._sent: list[tuple[Any, ...]] = []
        self._polls = 0
        self.tells = True

    def produce(self, *given: Any) -> None:
        self._sent.append(given)

    def flush(self, _: float) -> int:
        raise KafkaException(KafkaError(KafkaError._GAPLESS_GUARANTEE))

    def poll(self, _: float) -> None:
        self._polls += 1
        if self._polls == 2 and self.tells:
            topic, value, key, *_rest = self._sent[0]
            message = SimpleNamespace(topic=lambda: topic, key=lambda: key, value=lambda: value)
            self._reports(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message)

    def purge(self, **_: object) -> None:
        """Drop nothing: nobody asks for it."""


def publisher(monkeypatch: pytest.MonkeyPatch, made: list[Producer]) -> IdempotentPublisher:
    def make(*given: Any, **named: Any) -> Producer:
        made.append(Producer(*given, **named))
        return made[-1]

    monkeypatch.setattr("relay.kafka.publisher.Producer", make)
    found = IdempotentPublisher(
        {}, "progress", timeout=5, grace=1, stopped=lambda: False, slow=lambda _: None
    )
    found.open()
    return found


def published(found: IdempotentPublisher, *rows: Row) -> None:
    found.publish(rows, NOT_REACHED)


def test_an_event_that_breaks_the_producer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unpublishable) as refused:
        published(publisher(monkeypatch, []), LARGE)
    assert refused.value.row == LARGE


def test_a_producer_that_breaks_without_a_report_is_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Producer] = []
    found = publisher(monkeypatch, made)
    made[0].tells = False
    with pytest.raises(Outage, match="_GAPLESS_GUARANTEE"):
        published(found, LARGE)


class Fencing:
    """A transactional producer that another one has fenced."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def begin_transaction(self) -> None:
        raise self._error

    def poll(self, _: float) -> None:
        """Report nothing."""

    def abort_transaction(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))


@pytest.mark.parametrize(
    "error",
    [
        # The client's error came in the midst of a callback, which handled one of its own.
        SystemError("<method 'poll'> returned NULL without setting an exception"),
        # The call came before the client's error.
        KafkaException(KafkaError(KafkaError._FATAL)),
    ],
)
def test_a_relay_whose_producer_tells_no_reason_knows_that_it_is_fenced(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("relay.kafka.publisher.Producer", lambda *_, **__: Fencing(error))
    found = TransactionalPublisher(
        {}, "progress", timeout=5, grace=1, stopped=lambda: False, slow=lambda _: None
    )
    with pytest.raises(Fenced, match="another relay has taken over"):
        found.publish([LARGE], NOT_REACHED)
