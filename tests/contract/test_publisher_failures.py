"""Publishers keep their word where events are refused, Kafka is away or another took over."""

import re
from contextlib import closing

import pytest

from outbox import Event
from relay.errors import Fenced, Outage, Unpublishable
from relay.kafka import publisher as relay_publisher
from relay.kafka.publisher import (
    PublisherInTurn,
    TransactionalPublisher,
)
from tests.support.clients import clients
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.publishing import MODES, Setting, row, rows, visible
from tests.support.relaying import Watch, event, ids
from tests.support.waiting import patient, until

pytestmark = pytest.mark.contract


@pytest.fixture(params=MODES)
def setting(request: pytest.FixtureRequest, stack: Servers, topic: MakeTopic) -> Setting:
    return Setting(stack.kafka.bootstrap, request.param, topic(1, cleanup_policy="compact"))


def test_an_unknown_topic_names_the_event_and_what_comes_before_it(
    setting: Setting, topic: MakeTopic
) -> None:
    name, missing = topic(1), f"{setting.name}-missing"
    lost = row(event(missing, 1))
    with setting.publisher() as publisher, pytest.raises(Unpublishable) as refused:
        publisher.publish([*rows(name, range(3)), lost, *rows(name, [3])], setting.progress())
    assert lost[1] in str(refused.value)
    assert missing in str(refused.value)
    assert refused.value.before == 3


@pytest.mark.parametrize("told_by", ["client", "broker"])
def test_a_record_that_is_too_large_names_the_event(
    setting: Setting, topic: MakeTopic, told_by: str
) -> None:
    name = topic(1, max_message_bytes="3000")
    large = row(Event(topic=name, type="Large", key="k", value="x" * 5_000))
    most = "3000" if told_by == "client" else "1000000"
    with (
        setting.publisher(
            compression_type="none", linger_ms="0", batch_size="1000", message_max_bytes=most
        ) as publisher,
        pytest.raises(Unpublishable) as refused,
    ):
        publisher.publish([*rows(name, range(2)), large], setting.progress())
    assert large[1] in str(refused.value)
    assert name in str(refused.value)
    assert "max.message.bytes" in str(refused.value)
    assert refused.value.before == 2


@pytest.mark.parametrize("size", ["1", "1000"])
def test_a_refused_event_leaves_no_producer_behind(
    setting: Setting, topic: MakeTopic, size: str
) -> None:
    large = row(Event(topic=topic(1, max_message_bytes="3000"), type="Large", value="x" * 5_000))
    following = rows(large[3], range(1_000))
    before = clients()
    with setting.publisher(
        compression_type="none", linger_ms="0", batch_num_messages=size, batch_size="1000"
    ) as publisher:
        publisher.publish(rows(large[3], range(5)), setting.progress())
        with pytest.raises(Unpublishable):
            publisher.publish([large, *following], setting.progress(1))
    del publisher
    # Not after a garbage collection, for which a relay has little reason.
    until(lambda: clients() <= before, within=10, what="its producers end")


@pytest.mark.parametrize("size", ["1", "1000"])
@pytest.mark.parametrize("before", [0, 2])
def test_nothing_that_follows_a_refused_event_in_its_key_is_published(
    setting: Setting, topic: MakeTopic, size: str, before: int
) -> None:
    name = topic(1, max_message_bytes="3000")
    known = [row(event(name, 1_000 + number, key="k")) for number in range(before)]
    large = row(Event(topic=name, type="Large", key="k", value="x" * 5_000))
    following = [row(event(name, number, key="k")) for number in range(10_000)]
    other = row(event(name, 99, key="other"))
    with setting.publisher(
        compression_type="none", linger_ms="0", batch_num_messages=size, batch_size="1000"
    ) as publisher:
        if known:
            publisher.publish(known, setting.progress())
        with pytest.raises(Unpublishable) as refused:
            publisher.publish([large, *following], setting.progress(1))
        assert (refused.value.row, refused.value.before) == (large, 0)
    with setting.publisher() as publisher:
        publisher.publish([other], setting.progress(2))
    assert ids(visible(setting.bootstrap, name)) == [each[1] for each in (*known, other)]


def test_no_event_is_published_where_progress_is_kept(setting: Setting) -> None:
    forged = row(Event(topic=setting.progress_topic, type="T", key=setting.name))
    with setting.publisher() as publisher, pytest.raises(Unpublishable) as refused:
        publisher.publish([forged], setting.progress())
    assert forged[1] in str(refused.value)
    assert setting.newest() is None


def test_what_was_refused_hides_nothing_from_readers(setting: Setting, topic: MakeTopic) -> None:
    name = topic(1)
    with closing(Watch(setting.bootstrap, name)) as watch:
        with setting.publisher() as publisher, pytest.raises(Unpublishable):
            publisher.publish(
                [*rows(name, range(3)), row(event(f"{setting.name}-missing", 1))],
                setting.progress(),
            )
        until(lambda: watch.in_flight() == 0, within=5, what="no transaction is left open")
    if setting.mode == "exactly_once":
        assert visible(setting.bootstrap, name) == []


def test_a_new_publisher_goes_on_where_another_failed(setting: Setting, topic: MakeTopic) -> None:
    name = topic(2)
    batch = rows(name, range(10))
    with setting.publisher() as publisher, pytest.raises(Unpublishable):
        publisher.publish([*batch, row(event(f"{setting.name}-missing", 1))], setting.progress())
    with setting.publisher() as publisher:
        publisher.publish(batch, setting.progress(1))
        publisher.publish(rows(name, range(10, 20)), setting.progress(2))
    found = ids(visible(setting.bootstrap, name))
    assert set(found) >= {made[1] for made in batch}
    assert len(found) == 20 if setting.mode == "exactly_once" else len(found) >= 20


def test_a_broker_out_of_reach_is_an_outage(setting: Setting, topic: MakeTopic) -> None:
    # With transactions, the publisher notices when it opens; otherwise, with the first batch.
    with (
        pytest.raises(Outage, match="Kafka"),
        setting.publisher(timeout=4.0, bootstrap="127.0.0.1:1") as publisher,
    ):
        publisher.publish(rows(topic(1), range(3)), setting.progress())
    if setting.mode == "at_least_once":
        assert any("Kafka: a batch is not confirmed after" in reason for reason in setting.told)


def test_a_relay_that_is_to_stop_waits_only_its_grace(topic: MakeTopic, stack: Servers) -> None:
    setting = Setting(stack.kafka.bootstrap, "at_least_once", topic(1))
    setting.stopped = True
    with (
        setting.publisher(timeout=300.0, bootstrap="127.0.0.1:1") as publisher,
        pytest.raises(Outage, match=r"after \d+ s") as caught,
    ):
        publisher.publish(rows(topic(1), range(3)), setting.progress())
    (waited,) = re.findall(r"after (\d+) s", str(caught.value))
    assert int(waited) <= patient(2)


@pytest.mark.parametrize("before", [1, 2])
def test_the_older_of_two_transactional_publishers_is_fenced(
    topic: MakeTopic, stack: Servers, before: int
) -> None:
    """The result is the same whichever of its producers is next."""
    setting = Setting(stack.kafka.bootstrap, "exactly_once", topic(1, cleanup_policy="compact"))
    name = topic(1)
    with setting.publisher() as old:
        for number in range(before):
            old.publish(rows(name, [number]), setting.progress(1))
        with setting.publisher() as new:
            with pytest.raises(Fenced, match="another relay has taken over"):
                old.publish(rows(name, range(3, 6)), setting.progress(2))
            new.publish(rows(name, range(6, 9)), setting.progress(3))
    assert [message.value() for message in visible(stack.kafka.bootstrap, name)] == [
        *(b"%d" % number for number in range(before)), b"6", b"7", b"8",
    ]  # fmt: skip
    assert setting.newest() == setting.progress(3)


@pytest.mark.parametrize("turn", [0, 1])
def test_taking_over_ends_the_transaction_of_the_one_before(
    topic: MakeTopic, stack: Servers, turn: int
) -> None:
    """The result is the same whichever of its producers has begun it."""
    setting = Setting(stack.kafka.bootstrap, "exactly_once", topic(1, cleanup_policy="compact"))
    name = topic(1)
    with closing(Watch(setting.bootstrap, name)) as watch, setting.publisher() as both:
        assert isinstance(both, PublisherInTurn)
        old = both._publishers[turn]
        assert isinstance(old, TransactionalPublisher)
        # As if it had been stopped in the middle of a batch.
        old._producer.begin_transaction()
        old._produce(rows(name, range(1_000)))
        old._producer.flush(patient(10))
        assert watch.in_flight() == 1_000
        with setting.publisher() as new:
            assert watch.in_flight() == 0
            new.publish(rows(name, range(3)), setting.progress())
    assert len(visible(setting.bootstrap, name)) == 3


def test_a_time_that_the_broker_refuses_is_an_outage_and_no_fault_of_an_event(
    setting: Setting, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the relay's clock were years behind the broker's.
    monkeypatch.setattr(relay_publisher, "_NOW", 1_000_000_000_000)
    name = topic(1, message_timestamp_before_max_ms="3600000")
    # In a request of several events, they are sent one by one to find out.
    most = "1" if setting.mode == "at_least_once" else "10000"
    with (
        setting.publisher(batch_num_messages=most) as publisher,
        pytest.raises(Outage, match=r"this relay's clock says .*, and the broker's is further"),
    ):
        publisher.publish(rows(name, [0, 1]), setting.progress())
    monkeypatch.undo()
    with setting.publisher() as publisher:
        publisher.publish(rows(name, [0]), setting.progress())
