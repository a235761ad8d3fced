"""The topic of progress: progress is found in any amount of noise, and never guessed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    ConfigResource,
    ResourceType,
)

from dovecote.devstack import Stack
from relay.errors import Outage, Refused
from relay.kafka.progress_topic import ProgressTopic
from relay.rules.places.progress import Cursor, Origin, Progress, at
from relay.rules.places.search import fence_key
from relay.rules.places.snapshot import Snapshot
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient

ORIGIN = Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1))


@pytest.fixture
def bootstrap(stack: Stack) -> str:
    return stack.kafka.bootstrap


@pytest.fixture
def kept(topic: MakeTopic) -> str:
    """A progress topic."""
    return topic(1, cleanup_policy="compact")


def progress(name: str, position: int) -> Progress:
    return at(name, ORIGIN, Cursor(Snapshot(5, 5), Snapshot(9, 12, (10,)), position))


def reading(bootstrap: str, name: str, *, timeout: float | None = None) -> ProgressTopic:
    return ProgressTopic(name, {"bootstrap.servers": bootstrap}, timeout=timeout or patient(10))


@contextmanager
def transaction(
    bootstrap: str, topic: str, *records: tuple[str, bytes], commit: bool | None = True
) -> Iterator[Producer]:
    """Write records in one transaction: committed, aborted (False) or left open (None)."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"tests-{uuid4().hex}"}
    )
    producer.init_transactions(patient(10))
    producer.begin_transaction()
    for key, value in records:
        producer.produce(topic, value, key.encode(), partition=0)
    producer.flush(patient(10))
    if commit:
        producer.commit_transaction(patient(10))
    elif commit is False:
        producer.abort_transaction(patient(10))
    yield producer
    if commit is None:
        producer.abort_transaction(patient(10))


def write(bootstrap: str, topic: str, *records: tuple[str, bytes], commit: bool = True) -> None:
    with transaction(bootstrap, topic, *records, commit=commit):
        return


def behind_a_fence(bootstrap: str, place: ProgressTopic, name: str) -> Progress | None:
    """Read like a relay that has just fenced all others."""
    fence = uuid4().hex
    write(bootstrap, place.name, (fence_key(name, "").decode(), fence.encode()))
    return place.read(name, fence=fence)


def test_it_is_made_compacted_with_one_partition_and_small_segments(bootstrap: str) -> None:
    name = f"dovecote.progress.{uuid4().hex}"
    place = reading(bootstrap, name)
    assert not place.exists()
    place.ensure()
    place.ensure()
    assert place.exists()
    assert behind_a_fence(bootstrap, place, "shop") is None
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert len(admin.list_topics(timeout=patient(10)).topics[name].partitions) == 1
    resource = ConfigResource(ResourceType.TOPIC, name)
    found = admin.describe_configs([resource])[resource].result(patient(10))
    assert found["cleanup.policy"].value == "compact"
    assert 1 <= int(found["segment.bytes"].value) / 1_048_576 <= 16
    admin.delete_topics([name])[name].result(patient(10))


def test_two_relays_may_make_it_at_once(bootstrap: str) -> None:
    name = f"dovecote.progress.{uuid4().hex}"
    start = threading.Barrier(3)

    def ensure() -> None:
        place = reading(bootstrap, name)
        start.wait(patient(10))
        place.ensure()

    with ThreadPoolExecutor(3) as pool:
        for task in [pool.submit(ensure) for _ in range(3)]:
            task.result(patient(30))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(patient(10))


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_would_forget_is_refused(
    bootstrap: str, topic: MakeTopic, policy: str
) -> None:
    name = topic(1, cleanup_policy=policy)
    with pytest.raises(Refused, match=f"{name} has cleanup.policy="):
        reading(bootstrap, name).ensure()


def test_a_topic_of_several_partitions_is_refused(bootstrap: str, topic: MakeTopic) -> None:
    name = topic(2, cleanup_policy="compact")
    with pytest.raises(Refused, match="2 partitions instead of 1"):
        reading(bootstrap, name).ensure()


def test_the_newest_of_its_own_name_counts(bootstrap: str, kept: str) -> None:
    for position in (1, 2):
        for name in ("shop", "other"):
            write(bootstrap, kept, (name, progress(name, position).encode()))
    write(bootstrap, kept, ("other", progress("other", 3).encode()))
    place = reading(bootstrap, kept)
    assert behind_a_fence(bootstrap, place, "shop") == place.peek("shop") == progress("shop", 2)
    assert behind_a_fence(bootstrap, place, "other") == progress("other", 3)
    assert behind_a_fence(bootstrap, place, "third") is None


def test_it_is_found_behind_thousands_of_foreign_records(bootstrap: str, kept: str) -> None:
    write(bootstrap, kept, ("shop", progress("shop", 7).encode()))
    foreign = [("other", progress("other", n).encode()) for n in range(2_500)]
    write(bootstrap, kept, *foreign)
    write(bootstrap, kept, *foreign[:1_500], commit=False)
    place = reading(bootstrap, kept)
    assert behind_a_fence(bootstrap, place, "shop") == progress("shop", 7)
    assert behind_a_fence(bootstrap, place, "other") == progress("other", 2_499)


def test_an_aborted_record_counts_for_nothing_wherever_it_lies(bootstrap: str, kept: str) -> None:
    place = reading(bootstrap, kept)
    write(bootstrap, kept, ("shop", progress("shop", 1).encode()), commit=False)
    assert behind_a_fence(bootstrap, place, "shop") is None
    write(bootstrap, kept, ("shop", progress("shop", 2).encode()))
    for position in range(3, 8):
        write(bootstrap, kept, ("shop", progress("shop", position).encode()), commit=False)
    assert behind_a_fence(bootstrap, place, "shop") == place.peek("shop") == progress("shop", 2)


def test_a_look_from_outside_does_not_wait_for_an_open_transaction(
    bootstrap: str, kept: str
) -> None:
    write(bootstrap, kept, ("shop", progress("shop", 1).encode()))
    with transaction(bootstrap, kept, ("shop", progress("shop", 2).encode()), commit=None):
        assert reading(bootstrap, kept).peek("shop") == progress("shop", 1)


def test_reading_behind_the_fence_never_stops_short_of_an_open_transaction(
    bootstrap: str, kept: str
) -> None:
    # The fence ends the transaction of the same id; only a stranger's can be open here.
    write(bootstrap, kept, ("shop", progress("shop", 1).encode()))
    with transaction(bootstrap, kept, ("stranger", b"{}"), commit=None):
        write(bootstrap, kept, ("shop", progress("shop", 2).encode()))
        with pytest.raises(Outage, match="another transaction is open in it"):
            behind_a_fence(bootstrap, reading(bootstrap, kept, timeout=patient(1)), "shop")
    assert behind_a_fence(bootstrap, reading(bootstrap, kept), "shop") == progress("shop", 2)


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"format":99}', b"\xff", b"[1]", progress("shop", 1).encode()[:-9]]
)
def test_what_cannot_be_understood_is_refused_with_a_way_out(
    bootstrap: str, kept: str, value: bytes
) -> None:
    write(bootstrap, kept, ("shop", value))
    with pytest.raises(Refused, match="upgrade dovecote, or use another `name`"):
        behind_a_fence(bootstrap, reading(bootstrap, kept), "shop")


def test_a_missing_topic_says_what_a_restart_would_do(bootstrap: str) -> None:
    with pytest.raises(Outage, match="a relay started anew refuses to begin again"):
        reading(bootstrap, f"missing-{uuid4().hex}", timeout=patient(5)).read("shop", fence="any")


def test_a_broker_out_of_reach_is_an_outage() -> None:
    place = reading("127.0.0.1:1", "any", timeout=0.5)
    for ask in (
        place.ensure,
        place.exists,
        lambda: place.peek("shop"),
        lambda: place.read("shop", fence="any"),
    ):
        with pytest.raises(Outage, match="Kafka"):
            ask()


def test_without_the_fence_what_a_broker_answers_is_not_the_end(bootstrap: str, kept: str) -> None:
    # Like a broker that was cut off from its peers before the fence, and does not know it.
    write(bootstrap, kept, ("shop", progress("shop", 1).encode()))
    write(bootstrap, kept, (fence_key("shop", "").decode(), b"of-an-earlier-relay"))
    seconds = round(patient(1))
    with pytest.raises(Outage, match=f"no broker answers within {seconds} s"):
        reading(bootstrap, kept, timeout=seconds).read("shop", fence="of-this-relay")


def test_what_comes_behind_the_fence_is_of_a_later_relay_and_not_read(
    bootstrap: str, kept: str
) -> None:
    write(bootstrap, kept, ("shop", progress("shop", 1).encode()))
    write(bootstrap, kept, (fence_key("shop", "").decode(), b"mine"))
    write(bootstrap, kept, ("shop", progress("shop", 2).encode()))
    assert reading(bootstrap, kept).read("shop", fence="mine") == progress("shop", 1)


def test_a_record_of_an_earlier_term_that_comes_late_is_passed_over(
    bootstrap: str, kept: str
) -> None:
    newer = replace(progress("shop", 9), term=2)
    write(bootstrap, kept, ("shop", newer.encode()))
    write(bootstrap, kept, ("shop", replace(progress("shop", 3), term=1).encode()))
    place = reading(bootstrap, kept)
    assert behind_a_fence(bootstrap, place, "shop") == place.peek("shop") == newer


def test_of_another_outbox_with_the_same_name_progress_is_told(bootstrap: str, kept: str) -> None:
    theirs = replace(progress("shop", 9), outbox="theirs")
    write(bootstrap, kept, (theirs.key.decode(), theirs.encode()))
    place = reading(bootstrap, kept)
    assert place.peek("shop", "ours") == theirs
    ours = replace(progress("shop", 3), outbox="ours")
    write(bootstrap, kept, (ours.key.decode(), ours.encode()))
    write(bootstrap, kept, (theirs.key.decode(), theirs.encode()))
    assert place.peek("shop", "ours") == ours
