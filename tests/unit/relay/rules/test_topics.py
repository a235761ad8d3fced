"""A topic that takes no events holds up nobody, and the relay keeps looking for it."""

from collections.abc import Collection, Mapping

import pytest
from confluent_kafka import KafkaError

from relay.kafka.errors import OF_TOPIC as CODES
from relay.kafka.errors import code_of
from relay.rules.parking import OF_TOPIC, OWN_TOPIC, Reason
from relay.rules.row import Row
from relay.rules.topics import Rules, Topics
from tests.support.rows import row

MISSING = Reason("UNKNOWN_TOPIC_OR_PART", "no such topic")
FORBIDDEN = Reason("TOPIC_AUTHORIZATION_FAILED", "not allowed")


def rows(*topics: str) -> list[Row]:
    return [row(n, topic=topic) for n, topic in enumerate(topics)]


class Broker:
    """Has some topics, and counts its questions."""

    def __init__(self, *topics: str) -> None:
        self.topics, self.away = set(topics), False
        self.asked: list[set[str]] = []

    def ask(self, topics: Collection[str]) -> Mapping[str, Reason | None]:
        self.asked.append(set(topics))
        if self.away:
            return {}
        return {topic: None if topic in self.topics else MISSING for topic in topics}


def known(patience: float = 10) -> Topics:
    return Topics(Rules("progress"), patience)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("orders", None),
        ("orders.eu", None),
        ("payments", "TOPIC_NOT_ALLOWED"),
        ("progress", OWN_TOPIC.code),
        ("dovecote.progress.another", OWN_TOPIC.code),
        ("dovecote.markers.job", OWN_TOPIC.code),
        ("dovecote.skips", OWN_TOPIC.code),
        ("dovecote.push.slack.requeued", OWN_TOPIC.code),
        ("__consumer_offsets", OWN_TOPIC.code),
    ],
)
def test_topics_that_remember_are_closed_whatever_is_allowed(
    topic: str, reason: str | None
) -> None:
    rules = Rules("progress", ["orders", "orders.*", "*progress*", "_*", "dovecote*"])
    found = rules.refusal(topic)
    assert (found and found.code) == reason
    if reason != OWN_TOPIC.code:
        assert Rules("progress").refusal(topic) is None


def test_all_new_topics_of_a_batch_are_asked_for_in_one_question() -> None:
    topics, broker = known(), Broker("orders", "bills")
    batch = {"orders", "no-1", "bills", "no-2"}
    assert topics.closed(batch, 0, broker.ask) == {"no-1": MISSING, "no-2": MISSING}
    assert broker.asked == [{"orders", "bills", "no-1", "no-2"}]
    assert topics.closed(batch, 0.1, broker.ask) == {"no-1": MISSING, "no-2": MISSING}
    assert topics.closed({"orders", "bills"}, 0.2, broker.ask) == {}
    assert len(broker.asked) == 1


def test_of_what_the_broker_does_not_answer_nothing_is_closed() -> None:
    topics, broker = known(), Broker()
    broker.away = True
    assert topics.closed({"orders"}, 0, broker.ask) == {}
    broker.away = False
    assert topics.closed({"orders"}, 1, broker.ask) == {"orders": MISSING}


def test_a_topic_that_is_made_in_time_appears_and_one_that_is_made_later_does_not() -> None:
    topics, broker = known(patience=10), Broker()
    topics.closed({"soon", "late"}, 100, broker.ask)
    assert topics.appeared(100.4, broker.ask) == set()
    broker.topics.add("soon")
    assert topics.appeared(101, broker.ask) == {"soon"}
    # Until the caller has dealt with it.
    assert topics.appeared(101.1, broker.ask) == {"soon"}
    topics.welcomed({"soon", "orders"})
    assert topics.appeared(109, broker.ask) == set()
    broker.asked.clear()
    for now in (112, 113, 200):
        topics.appeared(now, broker.ask)
    broker.topics.add("late")
    assert topics.appeared(1_000, broker.ask) == set()
    assert len(broker.asked) == 1, "it was waited for, and that is over"
    # But events that come for it later go there.
    assert topics.closed({"late"}, 1_001, broker.ask) == {}
    assert topics.appeared(1_002, broker.ask) == set()


def test_an_event_for_a_topic_that_has_appeared_does_not_hide_that() -> None:
    topics, broker = known(), Broker()
    topics.closed({"soon"}, 0, broker.ask)
    broker.topics.add("soon")
    assert topics.closed({"soon"}, 1, broker.ask) == {}
    assert topics.appeared(1, broker.ask) == {"soon"}


def test_the_longer_a_topic_is_missing_the_rarer_it_is_asked_for() -> None:
    topics, broker = known(patience=3_600), Broker()
    topics.closed({"soon"}, 0, broker.ask)
    for tenths in range(36_000):
        topics.appeared(tenths / 10, broker.ask)
    assert 100 < len(broker.asked) < 200


def test_without_patience_nothing_is_waited_for() -> None:
    topics, broker = known(patience=0), Broker()
    assert topics.closed({"orders"}, 0, broker.ask) == {"orders": MISSING}
    broker.topics.add("orders")
    assert topics.appeared(100, broker.ask) == set()
    assert topics.closed({"orders"}, 29, broker.ask) == {"orders": MISSING}
    assert topics.closed({"orders"}, 31, broker.ask) == {}


def test_a_topic_that_is_refused_although_it_is_there_is_closed_and_not_tried_for_ever() -> None:
    topics, broker = known(), Broker("orders")
    assert topics.closed({"orders"}, 0, broker.ask) == {}
    topics.refused("orders", FORBIDDEN, 1)
    assert topics.closed({"orders"}, 1, broker.ask) == {"orders": FORBIDDEN}
    assert topics.appeared(2, broker.ask) == {"orders"}
    topics.welcomed({"soon", "orders"})
    topics.given_up("orders", FORBIDDEN, 3)
    for now in (4, 9, 40):
        assert topics.appeared(now, broker.ask) == set()


def test_a_topic_that_took_an_event_is_open() -> None:
    topics, broker = known(), Broker()
    topics.closed({"orders"}, 0, broker.ask)
    topics.taken(rows("payments"))
    assert topics.closed({"orders"}, 0.1, broker.ask) == {"orders": MISSING}
    topics.taken(rows("orders"))
    assert topics.closed({"orders"}, 0.2, broker.ask) == {}


def test_who_takes_over_goes_on_waiting_for_as_long_as_is_left() -> None:
    topics, broker = known(patience=10), Broker()
    topics.begin({"young": (MISSING, 4), "old": (MISSING, 11)}, 100)
    broker.topics |= {"young", "old"}
    assert topics.appeared(100, broker.ask) == {"young"}


def test_as_many_topics_as_there_may_be_are_remembered_within_bounds() -> None:
    topics, broker = known(), Broker()
    for n in range(30):
        batch = {f"order-{n}-{m}" for m in range(1_000)}
        assert len(topics.closed(batch, n, broker.ask)) == 1_000
    assert len(topics._refused) <= 10_000


def test_codes_of_topics_are_those_that_kafka_errors_have() -> None:
    assert {code_of(KafkaError(code)) for code in CODES} == OF_TOPIC
