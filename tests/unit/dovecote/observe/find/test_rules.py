"""A query has bounds, a key a partition, a commit a meaning, and a life one sentence."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest

from dedup.rules.lanes.offset_metadata import encode
from dedup.rules.unread import Place
from dovecote.observe.find import Life, PartFailure, Query
from dovecote.observe.find.batches import ask
from dovecote.observe.find.rules.facts import Batch, DeadCopy, Facts, Handled, Parked, Reach, Taker
from dovecote.observe.find.rules.partitions import partition_of
from dovecote.observe.find.rules.plan import targets, topics_in
from dovecote.observe.find.rules.query import Span, checked, is_of, spans, time_of
from dovecote.observe.find.rules.reach import reach
from dovecote.observe.find.rules.standing import of_reader
from dovecote.observe.find.rules.telling import one
from dovecote.observe.find.rules.took import took
from dovecote.observe.sources import SparkSource
from outbox import envelope
from outbox.envelope import Record
from outbox.errors import BadSettings

NOW = datetime(2026, 2, 1, 9, 30, tzinfo=UTC)
MADE = datetime(2026, 2, 1, 9, 0, tzinfo=UTC)
ID = str(UUID(int=int(MADE.timestamp() * 1000) << 80 | 7 << 76 | 2 << 62 | 5))
# The partitions that Java's producers choose among 1,000,003, by its `Utils.murmur2`.
HASHES = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (Query(), "name one of the two"),
        (Query(id="a", key=b"b"), "name one of the two"),
        (Query(id=""), "an id has 1 to 10,000 characters"),
        (Query(id="x" * 10_001), "an id has 1 to 10,000 characters"),
        (Query(id="order-42"), "is no UUIDv7"),
        (Query(id="0190b3f2-6c1e-4a55-8d0e-2f6f3a1c9b10"), "is no UUIDv7"),
        (Query(id=ID, since=NOW, until=NOW), "--since must be before --until"),
        (Query(key=b"k", limit=0), "--limit must be at least 1"),
    ],
)
def test_a_query_without_bounds_is_refused(query: Query, why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        checked(query, NOW)


def test_the_time_in_an_id_bounds_what_is_read_and_the_likely_part_comes_first() -> None:
    query = checked(Query(id=ID.upper()), NOW)
    assert time_of(query, NOW) == MADE
    first, before, rest = spans(query, NOW)
    made = int(MADE.timestamp() * 1000)
    assert first.first <= made < (first.until or 0)
    assert (before.until, rest.first, rest.until) == (first.first, first.until, None)
    assert before.first == made - 60_000
    bounded = checked(Query(id="order-42", since=MADE, until=NOW), NOW)
    assert spans(bounded, NOW) == [(made, int(NOW.timestamp() * 1000))]
    early = datetime(1, 1, 1, tzinfo=UTC)
    assert spans(checked(Query(key=b"", until=early), NOW), NOW) == [Span(0, 0)]
    key = checked(Query(key=b""), NOW)
    assert key.since == NOW - timedelta(hours=1)


def test_times_that_utc_has_no_room_for_are_the_first_and_the_last() -> None:
    zone = timezone(timedelta(hours=14))
    first = datetime(1, 1, 1, tzinfo=zone)
    last = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-14)))
    for query in (Query(key=b"k", since=first, until=last), Query(id=ID, since=first, until=last)):
        found = checked(query, NOW)
        for at in (found.since, found.until):
            assert at is not None
            assert at.astimezone(UTC) == at


def test_an_id_of_the_far_future_says_no_time() -> None:
    with pytest.raises(BadSettings, match="is no UUIDv7"):
        checked(Query(id="ffffffff-ffff-7000-8000-000000000000"), NOW)


def test_an_event_is_known_by_its_id_or_by_its_name() -> None:
    assert is_of(Query(id=ID.upper()), ID, "/shop", f"{ID}@/shop")
    assert is_of(Query(id=f"{ID}@/shop"), ID, "/shop", f"{ID}@/shop")
    assert not is_of(Query(id=f"{ID}@/shop"), ID, "/other", f"{ID}@/other")
    assert is_of(Query(id="a@b"), "a@b", "/shop", "a@b@/shop")


def test_a_key_is_looked_for_where_javas_producers_put_it() -> None:
    for key, hashed in HASHES.items():
        assert partition_of(key, 1_000_003) == (hashed & 0x7FFFFFFF) % 1_000_003


def test_a_commit_says_what_is_completed_below_it_and_beyond_it() -> None:
    text, _ = encode(10, [(12, 14)])
    found = {offset: reach(offset, 10, text).completed for offset in range(8, 16)}
    assert [offset for offset, completed in found.items() if completed] == [8, 9, 12, 13]
    assert reach(10, 10, text) == Reach(completed=False, behind=0, begun=True, members=None)
    assert reach(15, 10, text).behind == 5
    assert reach(3, None).behind is None
    other, _ = encode(10, [], topic_id="A" * 21 + "B")
    assert not reach(3, 10, other, topic_id="A" * 21 + "C").completed


def record(offset: int = 3) -> Record:
    return Record("orders", 0, offset, int(MADE.timestamp() * 1000), b"k", None)


def test_a_reader_that_says_nothing_is_unknown_and_says_why() -> None:
    reader = Taker("consumer/shipping", "consumer", "shipping", ("orders",))
    facts = Facts(ID, "/shop", home=[record()], unknown={"consumer/shipping": "it is away"})
    topics = frozenset({"orders"})
    found = of_reader(reader, facts, topics, NOW)
    assert found is not None
    assert (found.state, found.where) == ("unknown", "not known of consumer/shipping: it is away")
    facts.reaches["consumer/shipping", Place("orders", 0, 3)] = reach(3, 4, members=1)
    assert of_reader(reader, facts, topics, NOW)[1] == "completed"  # type: ignore[index]  # it is there
    facts.handled["consumer/shipping"] = [Handled(0, NOW)]
    told = one(facts, [reader], {reader.part: topics}, NOW)
    assert told.state("consumer/shipping") == "handled"
    assert [each.what for each in told.steps] == ["published", "handled"]
    assert of_reader(reader, facts, frozenset({"others"}), NOW) is None


def test_a_command_that_an_event_waits_for_can_be_pasted() -> None:
    reader = Taker("consumer/shipping", "consumer", "shipping", ("orders",), dead="dead")
    id_ = "an id; rm x"
    letter = Record(
        "dead", 0, 1, record().timestamp + 1, b"k", None, ((envelope.ID, id_.encode()),)
    )
    facts = Facts(id_, "/shop", letters=[DeadCopy(reader.part, letter, "", None)])
    facts.parked = [
        Parked("outbox/shop", "e-1", "/shop", "t", None, "T", "TOO", "large", NOW, None)
    ]
    life = Life({}, [one(facts, [reader], {reader.part: frozenset({"orders"})}, NOW)], [])

    told = life.by_file(Path("my watch.toml"))

    file = "--config 'my watch.toml'"
    assert told.events[0].waits_for == (
        "an operator: mend the cause, then "
        f"`dovecote dead requeue e-1 --part outbox/shop {file}`, or drop it; an operator: "
        f"`dovecote dead requeue 'an id; rm x' --part consumer/shipping {file}`, or drop it"
    )
    assert "after 1 attempt (" in told.where
    assert "--config FILE`" in (life.waits_for or "")


def test_an_answer_without_a_part_is_incomplete() -> None:
    whole = Life({}, [], [])
    assert "in none of the parts" in whole.where
    part = Life({}, [], [], [PartFailure("push/main", "away")])
    assert part.where == "not found, but the answer is incomplete: push/main did not answer"
    assert part.as_json()["failures"] == [{"part": "push/main", "error": "away"}]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_the_batch_that_took_a_record_is_in_the_log_of_offsets(
    tmp_path: Path, scheme: str
) -> None:
    ends = {4: 10, 5: 20, 6: 30}
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for number, end in ends.items():
        text = f'v1\n{{}}\n{{"orders": {{"0": {end}, "id": "AAAA"}}}}'
        (tmp_path / "offsets" / str(number)).write_text(text, encoding="utf-8")
    for number in (4, 5):
        (tmp_path / "commits" / str(number)).write_text("v1\n{}", encoding="utf-8")
    source = SparkSource.model_validate({"spark": {"checkpoint": f"{scheme}{tmp_path}"}})
    places = [Place("orders", 0, offset) for offset in (5, 10, 19, 20, 30)]
    assert ask(source, places) == {
        places[1]: Batch(5, finished=True),
        places[2]: Batch(5, finished=True),
        places[3]: Batch(6, finished=False),
    }
    assert took(Place("orders", 0, 5), [0, 1], lambda _: {"orders": {0: 6}}) == 0


def test_each_topic_has_a_role_and_what_one_part_writes_another_may_read() -> None:
    output = {"topic": "clean", "by_type": {"a": "as"}, "retry_topic": "r", "backlog": 3}
    assert topics_in(output) == {"topic": "clean", "by_type.a": "as", "retry_topic": "r"}
    job = Taker("spark/dedup", "spark", "g", ("orders",), outputs=("clean",), dead="dead")
    reader = Taker("consumer/c", "consumer", "c", ("^clea.*",), retries=("retry",))
    found = targets(Query(id=ID), [job, reader], ["orders", "clean", "dead", "retry"], NOW)
    assert {each.topic: each.role for each in found} == {
        "orders": "home", "clean": "home", "dead": "dead", "retry": "retry",
    }  # fmt: skip
    everything = targets(Query(id=ID), [], ["orders", "dovecote.progress.shop"], NOW)
    assert [each.topic for each in everything] == ["orders"]
