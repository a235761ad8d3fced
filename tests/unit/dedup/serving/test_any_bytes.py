"""Any bytes may come, and any exception: the record is handled, or a dead letter says why."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.retries.backoff import Backoff
from dedup.retries.letter import letter
from dedup.retries.plan import Plan, Tier
from dedup.rules.policies.decode import as_raw
from dedup.rules.policies.results import Dead, Retry, Skip, failure
from dedup.rules.policies.wording import MOST, plain
from dedup.rules.record import Record
from dedup.testing import Trial
from outbox import envelope
from outbox.envelope import UNREAD_HEADERS, Pair
from outbox.errors import InvalidEvent
from outbox.event import Event

NAMES = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from([*sorted(envelope.DELIVERY), envelope.ID, envelope.TIME, envelope.TYPE]),
)
HEADERS = st.lists(st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=12))), max_size=5)
TIMESTAMPS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-1, 0, 1_760_000_000_000, 1_760_000_000_000_000, 1_760_000_000_000_000_000]),
)
# Lone surrogates are among these characters.
TEXTS = st.text(alphabet=st.characters(exclude_categories=[]), max_size=40)
KEYS = st.one_of(st.none(), st.binary(max_size=8))


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError(self)


class Wordless(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307  # the mistake in question


class Left(BaseException): ...


EXCEPTIONS = st.one_of(
    st.builds(ValueError, TEXTS),
    st.builds(Left, TEXTS),
    st.builds(KeyError, st.binary(max_size=5)),
    st.sampled_from([Speechless("x"), Wordless(), asyncio.CancelledError(), GeneratorExit()]),
    st.builds(lambda text: OSError(text * 100_000), TEXTS),
)


def plan(*, tiers: Sequence[Tier] = ()) -> Plan:
    backoff = Backoff(base=timedelta(seconds=1), ceiling=timedelta(seconds=1), max_attempts=2)
    return Plan(patience=backoff, dead_letters="dead", tiers=tiers)


def written(record: Record) -> None:
    """Check that Kafka's client can write the record, and that its reason is a line."""
    for name, value in record.headers:
        assert name.encode().decode() == name
        assert value is None or isinstance(value, bytes)
    reason = letter(record).reason
    assert reason
    assert reason == plain(reason)
    assert len(reason) <= MOST


@given(key=KEYS, value=st.one_of(st.none(), st.binary(max_size=8)), headers=HEADERS, at=TIMESTAMPS)
def test_any_record_is_handled_or_a_dead_letter_says_why(
    key: bytes | None, value: bytes | None, headers: list[Pair], at: int
) -> None:
    handled: list[Event] = []
    trial = Trial(handled.append, plan=plan())
    trial.feed(Record("t", 0, 0, at, key, value, headers))
    trial.wait(timedelta(days=1))
    assert len(handled) + len(trial.dead_letters) == 1
    for dead in trial.dead_letters:
        written(dead)
    for each in handled:
        assert repr(each)


@given(error=EXCEPTIONS, key=KEYS, tiers=st.sampled_from([(), (Tier("retry"),)]))
def test_any_exception_is_the_reason_of_a_dead_letter(
    error: BaseException, key: bytes | None, tiers: Sequence[Tier]
) -> None:
    def handle(_: Event) -> None:
        raise error

    trial = Trial(handle, plan=plan(tiers=tiers), decode=as_raw)
    trial.feed(Record("t", 0, 0, 0, key, b"", ()))
    trial.wait(timedelta(days=1))
    (found,) = trial.dead_letters
    written(found)
    assert letter(found).attempts == 2
    assert letter(found).reason.startswith(type(error).__name__)


@given(text=TEXTS)
def test_any_reason_that_a_handler_returns_is_a_line(text: str) -> None:
    for reason in (Dead(text).error, Retry(text).error, Skip(text).reason):
        assert reason.isprintable()
        reason.encode()


def test_a_reason_keeps_what_can_be_shown_and_says_the_rest() -> None:
    assert plain("Ann \ud83d") == r"Ann \ud83d"
    assert plain("a\nb\0c\u2028d") == r"a\nb\x00c\u2028d"
    assert plain("Zoë 😀") == "Zoë 😀"
    assert len(plain("x" * 20_000_000)) == MOST
    assert "RuntimeError" in failure(Speechless("x")).error
    assert Dead(5).error == "5"  # type: ignore[arg-type]  # the mistake in question


@pytest.mark.parametrize(
    "timestamp", [1_760_000_000_000, 1_760_000_000_000_000, 1_760_000_000_000_000_000]
)
def test_a_timestamp_in_another_unit_is_the_same_time(timestamp: int) -> None:
    event = envelope.decode(Record("t", 0, 0, timestamp, b"k", b"1", ()))
    assert event.time == datetime.fromtimestamp(1_760_000_000, UTC)


@pytest.mark.parametrize("timestamp", [-1, -(2**63)])
def test_where_a_record_says_no_time_only_the_time_is_not_known(timestamp: int) -> None:
    record = Record("t", 0, 7, timestamp, b"k", b"1", ())
    event = record.event
    assert (event.key, event.value, event.id) == ("k", 1, "t/0/7")
    assert "time=" not in repr(event)
    with pytest.raises(InvalidEvent, match="the time of event 't/0/7' is not known"):
        _ = event.time
    said = record._replace(headers=((envelope.TIME, b"2026-01-01T00:00:00Z"),))
    assert envelope.decode(said).time == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("takes_records", [False, True])
def test_a_record_whose_headers_cannot_be_read_is_a_dead_letter(*, takes_records: bool) -> None:
    handled: list[object] = []
    trial = Trial(handled.append, plan=plan(), takes_records=takes_records)
    trial.feed(Record("t", 0, 0, 0, b"k", b"1", UNREAD_HEADERS))
    assert handled == []
    (found,) = trial.dead_letters
    written(found)
    assert (found.key, found.value) == (b"k", b"1")
    assert "the name of one is not UTF-8" in letter(found).reason


@pytest.mark.parametrize("name", [envelope.ATTEMPT, envelope.ROUND, envelope.FIRST_SEEN])
@pytest.mark.parametrize("value", [b"-1", b"9" * 30, b"x"])
def test_a_number_that_counts_nothing_is_refused(name: str, value: bytes) -> None:
    record = Record("t", 0, 0, 0, b"k", b"1", ((name, value),))
    with pytest.raises(InvalidEvent, match=f"header {name} must be"):
        envelope.delivery(record)
