"""The promises of both publishers, on a real broker, and their differences."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox import Event, write
from outbox.envelope import encode
from relay.errors import Fenced, Outage, Unpublishable
from relay.kafka import publisher as relay_publisher
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.properties import producer_properties
from relay.kafka.publisher import (
    IdempotentPublisher,
    Publisher,
    PublisherInTurn,
    TransactionalPublisher,
)
from relay.postgres.capture.table import TableCapture
from relay.rules.batch import Row
from relay.rules.places.progress import Cursor, Origin, Progress, at
from relay.rules.places.snapshot import Snapshot
from tests.support.fix_stack import MakeTopic, Servers, new_database
from tests.support.relaying import Watch, event, ids, installed, record_of
from tests.support.waiting import consume, patient, until

pytestmark = pytest.mark.contract

MODES = ("exactly_once", "at_least_once")
POSITIONS = count(1)

Encoded: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

One = TypeVar("One", TransactionalPublisher, IdempotentPublisher)


@dataclass
class Setting:
    """One outbox's place in the broker: its name and its progress topic."""

    bootstrap: str
    mode: str
    progress_topic: str
    name: str = field(default_factory=lambda: f"shop-{uuid4().hex[:12]}")
    told: list[str] = field(default_factory=list)
    stopped: bool = False

    @contextmanager
    def publisher(
        self, *, timeout: float = 20.0, bootstrap: str = "", **given: str
    ) -> Iterator[Publisher]:
        """Yield an open publisher, and close it."""
        with closing(self._make(timeout, bootstrap or self.bootstrap, given)) as publisher:
            publisher.open()
            yield publisher

    def _make(self, timeout: float, bootstrap: str, given: Mapping[str, str]) -> Publisher:
        if self.mode == "at_least_once":
            return self._one(IdempotentPublisher, "", timeout, bootstrap, given)
        ids = (self.name, f"{self.name}.second-turn")
        return PublisherInTurn(
            [self._one(TransactionalPublisher, id_, timeout, bootstrap, given) for id_ in ids]
        )

    def _one(
        self, kind: type[One], id_: str, timeout: float, bootstrap: str, given: Mapping[str, str]
    ) -> One:
        properties = producer_properties(
            {
                "bootstrap.servers": bootstrap,
                "topic.metadata.propagation.max.ms": "300",
                **{name.replace("_", "."): value for name, value in given.items()},
            },
            mode="exactly_once" if self.mode == "exactly_once" else "at_least_once",
            transactional_id=id_,
            transaction_timeout=timeout,
        )
        return kind(
            properties,
            self.progress_topic,
            timeout=timeout,
            grace=0.5,
            stopped=lambda: self.stopped,
            slow=self.told.append,
        )

    def progress(self, position: int = 0) -> Progress:
        origin = Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1))
        return at(self.name, origin, Cursor(Snapshot(5, 5), Snapshot(9, 9), position))

    def newest(self) -> Progress | None:
        return ProgressTopic(
            self.progress_topic, {"bootstrap.servers": self.bootstrap}, timeout=10
        ).peek(self.name)


@pytest.fixture(params=MODES)
def setting(request: pytest.FixtureRequest, stack: Servers, topic: MakeTopic) -> Setting:
    return Setting(stack.kafka.bootstrap, request.param, topic(1, cleanup_policy="compact"))


def row(made: Event) -> Row:
    """Return an event as the capture reads it."""
    key, value, _ = encode(made)
    names = [name for name, _ in made.headers]
    values = [data for _, data in made.headers]
    since_2000 = int(made.time.timestamp() * 1_000_000) - 946_684_800_000_000
    return (
        next(POSITIONS), made.id, since_2000, made.topic, key, value, made.type, made.source,
        made.subject, made.media_type(), names, values,
    )  # fmt: skip


def rows(topic: str, numbers: Sequence[int], *, keys: int = 5) -> list[Row]:
    return [row(event(topic, number, key=f"k{number % keys}")) for number in numbers]


def visible(bootstrap: str, topic: str, start: Mapping[int, int] | None = None) -> list[Message]:
    """Return what a reader sees once Kafka is done: it answers a commit before its markers."""
    with closing(Watch(bootstrap, topic)) as watch:
        until(lambda: watch.in_flight() == 0, within=10, what="the markers of a commit")
    return consume(bootstrap, topic, start=start)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave time for later events, however slow the machine is."""
    monkeypatch.setattr(relay_publisher, "_UNSENT", 5.0)


def test_every_key_keeps_its_order_within_and_across_batches(
    setting: Setting, topic: MakeTopic
) -> None:
    name = topic(3)
    with setting.publisher() as publisher:
        for first in range(0, 3_000, 1_000):
            publisher.publish(rows(name, range(first, first + 1_000)), setting.progress(first))
    found = visible(setting.bootstrap, name)
    for key in {message.key() for message in found}:
        numbers = [int(message.value() or b"") for message in found if message.key() == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 600


def test_progress_is_there_when_publish_returns(setting: Setting, topic: MakeTopic) -> None:
    name = topic(1)
    assert setting.newest() is None
    with setting.publisher() as publisher:
        for position in (3, 7):
            publisher.publish(rows(name, range(3)), setting.progress(position))
            assert setting.newest() == setting.progress(position)
        publisher.publish([], setting.progress(8))
        assert setting.newest() == setting.progress(8)
    assert len(visible(setting.bootstrap, name)) == 6


def test_nothing_is_visible_before_it_may_be(setting: Setting, topic: MakeTopic) -> None:
    name = topic(1)

    def never() -> None:
        msg = "it is not on disk"
        raise Outage(msg)

    with setting.publisher() as publisher:
        publisher.publish(rows(name, [1]), setting.progress(1))
        with pytest.raises(Outage, match="not on disk"):
            publisher.publish(rows(name, [2]), setting.progress(2), ready=never)
    with setting.publisher() as publisher:
        publisher.publish(rows(name, [3]), setting.progress(3))
    assert [message.value() for message in visible(setting.bootstrap, name)] == [b"1", b"3"]


@pytest.mark.usefixtures("unhurried")
def test_what_comes_meanwhile_is_published_behind_with_its_own_progress(
    setting: Setting, topic: MakeTopic
) -> None:
    name = topic(1)
    asked: list[float] = []

    def more(seconds: float) -> tuple[list[Row], Progress]:
        asked.append(seconds)
        return rows(name, range(3, 6), keys=1), setting.progress(6)

    with setting.publisher() as publisher:
        publisher.publish(rows(name, range(3), keys=1), setting.progress(3), more)
        publisher.publish([], setting.progress(7), more)
    values = [int(message.value() or b"") for message in visible(setting.bootstrap, name)]
    # At least once, nothing waits in the client; and without events there is nothing to wait for.
    if setting.mode == "exactly_once":
        assert (values, len(asked)) == ([0, 1, 2, 3, 4, 5], 1)
        assert 0 < asked[0] <= 5
    else:
        assert (values, asked) == ([0, 1, 2], [])
    assert setting.newest() == setting.progress(7)


@pytest.mark.usefixtures("unhurried")
def test_what_comes_meanwhile_is_behind_the_progress_that_counts(
    setting: Setting, topic: MakeTopic
) -> None:
    name = topic(1)
    with setting.publisher() as publisher:
        publisher.publish(
            rows(name, range(3)),
            setting.progress(3),
            lambda _: (rows(name, range(3, 6)), setting.progress(6)),
        )
    published = len(visible(setting.bootstrap, name))
    assert setting.newest() == setting.progress(published)


@pytest.mark.usefixtures("unhurried")
def test_what_comes_meanwhile_is_refused_as_a_part_of_its_batch(
    setting: Setting, topic: MakeTopic
) -> None:
    if setting.mode != "exactly_once":
        pytest.skip("at least once, nothing comes meanwhile")
    name, missing = topic(1), f"{setting.name}-missing"
    late = [*rows(name, [3]), row(event(missing, 4))]
    with setting.publisher() as publisher, pytest.raises(Unpublishable) as refused:
        publisher.publish(
            rows(name, range(3)), setting.progress(3), lambda _: (late, setting.progress(5))
        )
    assert refused.value.before == 4
    assert visible(setting.bootstrap, name) == []
    assert setting.newest() is None


def murmur2(data: bytes) -> int:
    """Return Java's `Utils.murmur2` as an unsigned number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at_ in range(0, whole, 4):
        k = int.from_bytes(data[at_ : at_ + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From Kafka's own UtilsTest.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_our_murmur2_is_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_a_key_goes_to_the_partition_that_java_gives_it(
    setting: Setting, topic: MakeTopic
) -> None:
    name, partitions = topic(7), 7
    chance = random.Random(7)
    keys = [b"", b"21", b"foobar", *(chance.randbytes(length) for length in range(1, 60))]
    with setting.publisher() as publisher:
        batch = [row(Event(topic=name, type="T", key=key)) for key in keys]
        publisher.publish(batch, setting.progress())
    for message in visible(setting.bootstrap, name):
        hashed = murmur2(message.key() or b"") & 0x7FFFFFFF
        assert message.partition() == hashed % partitions, message.key()


def test_events_without_a_key_are_spread(setting: Setting, topic: MakeTopic) -> None:
    name = topic(4)
    with setting.publisher(sticky_partitioning_linger_ms="0") as publisher:
        publisher.publish(
            [row(Event(topic=name, type="T")) for _ in range(200)], setting.progress()
        )
    found = visible(setting.bootstrap, name)
    assert {message.partition() for message in found} == {0, 1, 2, 3}
    assert all(message.key() is None and message.value() is None for message in found)


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
        pytest.raises(Outage, match=r"after [012] s"),
    ):
        publisher.publish(rows(topic(1), range(3)), setting.progress())


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


# The texts that fit into a text column of Postgres.
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
words = text.filter(bool)
header_names = words.filter(
    lambda name: (
        not name.lower().startswith("ce_") and name.lower() not in {"content-type", "traceparent"}
    )
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "type": words,
    "key": st.none() | st.binary(max_size=20) | text,
    "value": st.none() | st.binary(max_size=50) | text | st.dictionaries(text, st.integers()),
    "source": words,
    "subject": st.none() | text,
    "time": st.datetimes(timezones=st.timezones()).filter(lambda time: 2 < time.year < 9998),
    "content_type": st.none() | words,
    "headers": st.lists(st.tuples(header_names, st.none() | st.binary() | text), max_size=4),
    "traceparent": st.none() | st.just("00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
}


@pytest.fixture(scope="module")
def outbox_dsn(stack: Servers) -> Iterator[str]:
    with new_database(stack) as database:
        yield installed(database)


def test_records_carry_exactly_what_the_envelope_says(
    setting: Setting, topic: MakeTopic, outbox_dsn: str
) -> None:
    name = topic(1)
    seen = 0

    @settings(
        max_examples=8,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.lists(st.builds(Event, topic=st.just(name), **fields), min_size=5, max_size=25))
    def written_and_read_back(events: list[Event]) -> None:
        nonlocal seen
        batch = captured(outbox_dsn, events)
        publish(batch, setting.progress())
        found = visible(setting.bootstrap, name, start={0: seen})
        seen = max(int(message.offset() or 0) for message in found) + 1
        records = [(each.key, each.value, list(each.headers)) for each in map(record_of, found)]
        assert by_key(records) == by_key(map(encode, events))
        if setting.mode == "exactly_once":
            assert records == [encode(made) for made in events]

    with setting.publisher() as publisher:
        publish: Callable[[list[Row], Progress], None] = publisher.publish
        written_and_read_back()


def by_key(records: Iterable[Encoded]) -> dict[bytes | None, list[Encoded]]:
    """
    Return the records of each key in their order; records of different keys may change places.
    """
    found: dict[bytes | None, list[Encoded]] = {}
    for record in records:
        found.setdefault(record[0], []).append(record)
    return found


def captured(dsn: str, events: list[Event]) -> list[Row]:
    """Return the rows of events that went through the outbox."""
    with psycopg.connect(dsn) as conn:
        conn.execute("TRUNCATE outbox.events")
        write(conn, *events)
    with closing(TableCapture(dsn, "outbox", batch_rows=100, batch_bytes=10**7)) as capture:
        return [row for batch in capture.batches(Cursor()) for row in batch.rows]


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
