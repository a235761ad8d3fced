"""The parts of a producer that need no server."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Kafka

import outbox
from outbox import BadSettings, Event, NotAccepted, ProducerClosed
from outbox.errors import NoClient
from outbox.producer import direct
from outbox.producer.direct import Direct
from outbox.producer.fallback import Fallback
from outbox.producer.ledger import Ledger
from outbox.producer.pause import Pause
from outbox.producer.producer import Options, Producer
from outbox.producer.waiting import Waiting, size_of
from outbox.tokens.source import client_of
from tests.support.waiting import patient, until

NOWHERE = {"bootstrap.servers": "127.0.0.1:9"}
NO_DATABASE = "host=127.0.0.1 port=9 dbname=none"
EVENT = Event(topic="t", type="T", key="a", value="x" * 1_000)


def test_a_service_that_only_writes_loads_no_kafka_client() -> None:
    told = (
        "import sys, outbox; assert 'confluent_kafka' not in sys.modules;"
        " outbox.Producer; assert 'confluent_kafka' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", told], check=True)
    with pytest.raises(AttributeError, match="no attribute 'Consumer'"):
        outbox.Consumer  # type: ignore[attr-defined]  # noqa: B018  # that is the point


class Wrong(Direct):
    """A client with a bug."""

    def reports(self, timeout: float) -> tuple[list[int], str | None]:
        raise ZeroDivisionError(timeout)


class Mistaken(Producer):
    """A producer with such a client."""

    def _connect(self) -> Direct:
        return Wrong(self._configuration)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_producer_that_has_a_bug() -> None:
    with Mistaken(NO_DATABASE, NOWHERE) as producer, pytest.raises((NotAccepted, ProducerClosed)):
        producer.send(EVENT)
    assert producer.state.waiting == 0


def broken(*_: object) -> None:
    raise ZeroDivisionError


def test_an_observer_that_fails_is_told_of_once_and_is_in_nobodys_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brief = timedelta(milliseconds=50)
    options = Options(delivery_timeout=brief, accept_timeout=2 * brief, fresh=True)
    # It counts as soon as there is a client, and then for each event that nobody takes.
    with Producer(NO_DATABASE, NOWHERE, options=options, observe=broken) as producer:
        for _ in range(3):
            with pytest.raises(NotAccepted):
                producer.send(EVENT)
    told = [record for record in caplog.records if "`observe` failed" in record.message]
    assert len(told) == 1
    assert told[0].exc_info is not None


def test_what_refuses_an_event_never_heard_of_is_said_so() -> None:
    ledger = Ledger(Options(), None)
    number, promise = ledger.waiting.add(EVENT, 1, 0.0)
    with ledger.changed:
        answers = ledger.refused([number])
    ledger.give(answers)
    with pytest.raises(NotAccepted, match="Postgres: has not answered"):
        promise.result(0)


def test_a_closed_producer_takes_nothing_and_is_closed_again() -> None:
    producer = Producer(NO_DATABASE, NOWHERE, options=Options(fresh=True))
    assert producer.flush(timedelta(0))
    producer.close()
    producer.close()
    with pytest.raises(ProducerClosed, match=EVENT.id):
        producer.send(EVENT)


def test_so_many_events_and_so_many_bytes_may_wait_and_one_always() -> None:
    waiting = Waiting(events=2, size=5_000)
    assert waiting.has_room(1_000_000)
    first, promise = waiting.add(EVENT, 3_000, now=0.0)
    assert (waiting.has_room(2_000), waiting.has_room(2_001)) == (True, False)
    second, _ = waiting.add(EVENT, 1, now=1.0)
    assert not waiting.has_room(1)
    assert waiting.older([first, second], than=0.5) == [first]
    assert waiting.accepted(first, "kafka").give() == "kafka"
    assert (promise.result(0), waiting.size, waiting.is_past(first)) == ("kafka", 1, True)
    assert not waiting.is_past(second)


def test_whoever_gives_up_waiting_takes_no_event_back() -> None:
    waiting = Waiting(events=1, size=1)
    number, promise = waiting.add(EVENT, 1, now=0.0)
    assert not promise.cancel()
    assert waiting.refused(number, "Kafka: gone").give() == "refused"
    with pytest.raises(NotAccepted, match=f"{EVENT.id} .*Kafka: gone"):
        promise.result(0)


def test_the_size_of_an_event_is_more_than_what_it_carries() -> None:
    assert size_of(EVENT) > 1_000


def test_pauses_grow_to_the_longest_and_begin_anew() -> None:
    pause = Pause(10.0, 30.0)
    assert pause.left == 0
    for seconds in (10.0, 20.0, 30.0, 30.0):
        pause.longer()
        assert seconds - 1 < pause.left <= seconds
    pause.shorter()
    assert 9 < pause.left <= 10


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Producer(NO_DATABASE, {}), "kafka: bootstrap.servers is missing"),
        (lambda: Producer("nonsense", NOWHERE), "dsn: libpq cannot read this connection string"),
        (
            lambda: Producer("postgresql+asyncpg://shop@db/shop", NOWHERE),
            r"it is SQLAlchemy's; drop '\+asyncpg' after its first word",
        ),
        (
            lambda: Options(accept_timeout=4),  # type: ignore[arg-type]  # the mistake in question
            "accept_timeout must be a timedelta, such as .*, not 4",
        ),
    ],
)
def test_what_could_not_work_is_refused_at_once(make: Callable[[], object], says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        make()


def test_an_event_that_was_not_sent_to_kafka_is_not_said_to_be() -> None:
    ledger = Ledger(Options(), None)
    ledger.outbox_trouble = "down"
    number, promise = ledger.waiting.add(EVENT, 1, now=0.0)
    with ledger.changed:
        ledger.give(ledger.refused([number]))

    with pytest.raises(
        NotAccepted, match="Kafka: not tried, as earlier events may be in the outbox"
    ):
        promise.result(0)


@pytest.mark.parametrize(
    "worse",
    [
        "host=127.0.0.1 port=9 password=two S3CRET",
        "host=127.0.0.1 port=9 password=S3CRET\udcfc",
        "host=db..internal port=9 password=S3CRET",
    ],
)
def test_a_text_that_cannot_be_right_neither_shows_its_password_nor_ends_the_producer(
    worse: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, was_read = [NO_DATABASE], threading.Event()

    def dsn() -> str:
        if given[0] == worse:
            was_read.set()
        return given[0]

    brief = timedelta(milliseconds=100)
    options = Options(delivery_timeout=brief, accept_timeout=3 * brief)
    with Producer(dsn, NOWHERE, options=options) as producer:
        given[0] = worse
        assert was_read.wait(patient(10))
        for _ in range(2):
            with pytest.raises(NotAccepted) as refused:
                producer.send(EVENT)
            assert "S3CRET" not in str(refused.value)
        assert "S3CRET" not in str(producer.state)
    assert "S3CRET" not in caplog.text


FULL = RuntimeError("Failed to initialize thread local storage")
RENEWED = KafkaException(KafkaError(KafkaError._INVALID_ARG, "key values mismatch"))


class Crowded(Producer):
    """A producer whose first two Kafka clients cannot be made."""

    error: Exception
    lacks = 2

    def _connect(self) -> Direct:
        if self.lacks:
            self.lacks -= 1
            client_of(self._refuse, {}, logging.getLogger("test"))
        return super()._connect()

    def _refuse(self, *_: object, **__: object) -> Kafka:
        raise self.error


@pytest.mark.parametrize(
    ("error", "says"), [(FULL, "cannot have another"), (RENEWED, "key values mismatch")]
)
def test_a_producer_waits_for_its_client_and_the_outbox_takes_its_events(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Crowded, "error", error, raising=False)
    monkeypatch.setattr(Fallback, "write", lambda *_: 1)
    monkeypatch.setattr(Fallback, "token", lambda _: 1)
    monkeypatch.setattr(Fallback, "drained", lambda *_: [])
    with Crowded(NO_DATABASE, NOWHERE) as producer:
        assert says in str(producer.state.kafka_trouble)
        assert producer.send(EVENT) == "outbox"
        until(lambda: producer.state.broker == "up", within=5, what="a client")
        assert (producer.lacks, producer.send(EVENT)) == (0, "outbox")


def test_a_process_without_room_for_a_client_is_told_when_it_makes_a_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(direct, "Producer", full)
    with pytest.raises(NoClient, match="cannot have another Kafka client"):
        Producer(NO_DATABASE, NOWHERE)
