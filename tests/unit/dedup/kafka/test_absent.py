from types import SimpleNamespace

from confluent_kafka import KafkaError, KafkaException

from dedup.kafka.absent import Absent

UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
AWAY = KafkaError(KafkaError._TRANSPORT)


class Client:
    """Says the same about every topic."""

    def __init__(self) -> None:
        self.error: KafkaError | None = UNKNOWN
        self.partitions = {0}
        self.asked = 0

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self.asked += 1
        if self.error is AWAY:
            raise KafkaException(AWAY)
        assert timeout < 1
        found = SimpleNamespace(error=self.error, partitions=dict.fromkeys(self.partitions))
        return SimpleNamespace(topics={topic: found})


def test_it_is_told_as_long_as_the_topic_is_not_there_and_asked_seldom() -> None:
    client = Client()
    absent = Absent(client)  # type: ignore[arg-type]  # one that says what the test wants
    assert not absent.report(100.0)
    absent.noticed(UNKNOWN, "bookings")
    for now in (100.0, 101.0, 101.9):
        assert absent.report(now).startswith("topic 'bookings' cannot be read: ")
    assert client.asked == 1
    client.error = AWAY
    assert "bookings" in absent.report(103.0)
    client.error = None
    assert "bookings" in absent.report(103.1)
    assert not absent.report(106.0)
    assert not absent.report(120.0)
    assert client.asked == 3


def test_other_errors_are_not_of_a_topic() -> None:
    absent = Absent(Client())  # type: ignore[arg-type]  # one that says what the test wants
    absent.noticed(AWAY, "bookings")
    absent.noticed(UNKNOWN, None)
    assert not absent.report(100.0)


def test_a_broker_that_does_not_answer_keeps_the_poll_thread_waiting_once() -> None:
    client = Client()
    absent = Absent(client)  # type: ignore[arg-type]  # one that says what the test wants
    client.error = AWAY
    for number in range(50):
        absent.noticed(UNKNOWN, f"bookings-{number}")
    assert absent.report(100.0).count("cannot be read") == 50
    assert client.asked == 1


def test_explicit_partitions_are_asked_for_until_they_are_there() -> None:
    client = Client()
    absent = Absent(client, {"bookings": (0, 3)})  # type: ignore[arg-type]  # one that says what the test wants
    client.error = AWAY
    assert not absent.report(100.0)
    client.error = None
    assert absent.report(103.0) == "topic 'bookings' cannot be read: it has no partition 3"
    client.partitions = {0, 1, 2, 3}
    assert not absent.report(106.0)
    assert not absent.report(120.0)
    assert client.asked == 3
