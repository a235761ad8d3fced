"""The promises of both publishers, on a real broker, and their differences."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox import Event, write
from outbox.envelope import encode
from relay.errors import Outage, Unpublishable
from relay.kafka import publisher as relay_publisher
from relay.postgres.capture.table import TableCapture
from relay.rules.places.progress import Cursor, Progress
from relay.rules.row import Row
from tests.support.fix_stack import MakeTopic, Servers, new_database
from tests.support.publishing import MODES, Setting, row, rows, visible
from tests.support.relaying import event, installed, record_of

pytestmark = pytest.mark.contract


Encoded: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture(params=MODES)
def setting(request: pytest.FixtureRequest, stack: Servers, topic: MakeTopic) -> Setting:
    return Setting(stack.kafka.bootstrap, request.param, topic(1, cleanup_policy="compact"))


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


# The texts that fit into a text column of Postgres.
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


words = text.filter(bool)


header_names = words.filter(
    lambda name: (
        not name.lower().startswith(("ce_", "dovecote_"))
        and name.lower() not in {"content-type", "traceparent"}
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
