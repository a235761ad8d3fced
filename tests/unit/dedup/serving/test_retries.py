"""The destinations of records that were not fully handled, and the form in which they return."""

from collections.abc import Collection, Mapping
from datetime import timedelta

import pytest

from dedup.retries import copies
from dedup.retries.aside import Held, Outage, Partition, Placed
from dedup.retries.backoff import Backoff
from dedup.retries.copies import Copy, Unwritable
from dedup.retries.held_states import Place, State
from dedup.retries.plan import Exceptions, Plan, Tier
from dedup.rules.identity import Identity, stored
from dedup.rules.policies.decode import Undecodable
from dedup.rules.policies.results import (
    Again,
    Dead,
    Done,
    Early,
    NonRetriable,
    Result,
    Retry,
    Skip,
    TakenOver,
)
from dedup.rules.record import Record
from dedup.serving.retries import Retries
from outbox import envelope
from outbox.envelope import (
    ERROR,
    FIRST_SEEN,
    GROUP,
    HOPS,
    ID,
    NOT_BEFORE,
    ORIGIN,
    ROUND,
    WITHOUT_VALUE,
)

NOW = 1_800_000_000_000
BACKOFF = Backoff(base=timedelta(seconds=8), ceiling=timedelta(minutes=10), max_attempts=3)
RECORD = Record("orders", 3, 44, 1_700_000_000_000, b"k", b"{}", [(ID, b"e1")])
TIERS = (Tier("retry.short"), Tier("retry.long", timedelta(minutes=1)))


class Topics:
    """
    Records what was sent; topics in `full` take nothing with a value, and those in `down` nothing.
    """

    def __init__(self, *, full: str = "", down: str = "") -> None:
        self.sent: list[tuple[str, Copy]] = []
        self._full, self._down = full.split(), down.split()

    def send(self, topic: str, copy: Copy) -> None:
        if topic in self._down:
            raise Outage(topic)
        if topic in self._full and copy.value is not None:
            msg = f"too large for {topic}"
            raise Unwritable(msg)
        self.sent.append((topic, copy))

    def one(self) -> tuple[str, dict[str, str]]:
        ((topic, copy),) = self.sent
        return topic, {name: (value or b"").decode() for name, value in copy.headers}


class Clock:
    now = NOW

    def __call__(self) -> int:
        return self.now


def holding(topics: Topics | None = None, dead_letters: str | None = "dead") -> Retries:
    plan = Plan(patience=BACKOFF, dead_letters=dead_letters)
    return Retries(plan, topics or Topics(), now=Clock())


def recirculating(topics: Topics, **settings: object) -> Retries:
    plan = Plan(patience=BACKOFF, tiers=TIERS, dead_letters="dead", **settings)  # type: ignore[arg-type]  # of a plan's types
    return Retries(plan, topics, now=Clock())


def test_a_failed_record_holds_its_key_as_long_as_the_backoff_says() -> None:
    retries = holding()

    for attempt in (1, 2):
        wait = BACKOFF.wait(Identity("orders", "e1"), attempt=attempt)
        answer = retries.place(RECORD, Retry("down"), attempt)
        assert answer == Held(timedelta(milliseconds=round(wait.total_seconds() * 1000)))


def test_the_handler_sees_what_a_held_record_went_through() -> None:
    seen: list[Record] = []
    retries = holding()

    def handle(record: Record) -> Result:
        seen.append(record)
        return Retry("down") if len(seen) < 3 else Done()

    handler = retries.handling(handle)
    for attempt in (1, 2):
        failed = handler(RECORD)
        assert isinstance(failed, Retry)
        retries.place(RECORD, failed, attempt)
    assert handler(RECORD) == Done()

    assert [envelope.delivery(record).attempt for record in seen] == [1, 2, 3]
    assert envelope.delivery(seen[2]).first_seen == NOW
    assert [record.identity for record in seen] == [Identity("orders", "e1")] * 3
    retries.released(RECORD)
    assert retries.as_it_is(RECORD) is RECORD


def test_another_round_in_place_is_a_round_of_its_own() -> None:
    retries, again = holding(), Again(timedelta(seconds=5))

    assert retries.place(RECORD, again, 1) == Held(timedelta(seconds=5))
    assert retries.as_it_is(RECORD).identity == Identity("orders", "e1", 1)
    retries.place(RECORD, Retry("down"), 1)
    assert retries.as_it_is(RECORD).identity == Identity("orders", "e1", 1)
    retries.place(RECORD, again, 2)
    assert retries.as_it_is(RECORD).identity == Identity("orders", "e1", 2)


def test_the_last_attempt_ends_among_the_dead_letters_with_what_it_took() -> None:
    topics = Topics()
    retries = holding(topics)
    for attempt in (1, 2):
        retries.place(RECORD, Retry("down"), attempt)

    assert retries.place(RECORD, Retry("still down"), 3) == Placed("dead_letter")

    topic, headers = topics.one()
    assert (topic, headers[ID], headers["dovecote_attempt"]) == ("dead", "e1", "3")
    assert (headers[ORIGIN], headers[ERROR]) == ("orders/3/44", "still down")
    assert headers[FIRST_SEEN] == str(NOW)
    assert NOT_BEFORE not in headers
    assert topics.sent[0][1][:2] == (b"k", b"{}")


def test_without_dead_letters_nothing_is_given_up() -> None:
    retries = holding(dead_letters=None)

    assert retries.place(RECORD, Dead("closed"), 1) == Held(timedelta(minutes=5))
    exhausted = retries.place(RECORD, Retry("down"), 999)
    assert exhausted == Held(timedelta(minutes=5))
    assert isinstance(exhausted, Held)
    assert exhausted.given_up


@pytest.mark.parametrize(
    ("wait", "topic"), [(1, "retry.short"), (59, "retry.short"), (60, "retry.long")]
)
def test_what_waits_longer_goes_to_a_later_tier(wait: int, topic: str) -> None:
    topics = Topics()

    answer = recirculating(topics).place(RECORD, Retry("busy", timedelta(seconds=wait)), 1)

    assert answer == Placed("retry")
    sent, headers = topics.one()
    assert (sent, headers[ROUND], headers[ORIGIN]) == (topic, "1", "orders/3/44")
    assert headers[NOT_BEFORE] == str(NOW + wait * 1000)


def test_a_record_of_a_retry_topic_waits_until_it_is_due() -> None:
    clock = Clock()
    retries = Retries(Plan(tiers=TIERS), Topics(), now=clock)
    due = RECORD._replace(topic="retry.short", headers=[(NOT_BEFORE, str(NOW + 700).encode())])

    assert retries.early(due) == timedelta(milliseconds=700)
    clock.now += 700
    assert retries.early(due) is None
    assert retries.early(due._replace(topic="orders")) is None
    assert retries.early(due._replace(headers=[(NOT_BEFORE, b"soon")])) is None


def test_a_write_that_fails_is_an_outage_and_no_place() -> None:
    cases: list[tuple[Topics, Retry | Dead]] = [
        (Topics(down="retry.short"), Retry("x")),
        (Topics(down="dead"), Dead("x")),
    ]
    for topics, result in cases:
        with pytest.raises(Outage):
            recirculating(topics).place(RECORD, result, 1)
        assert topics.sent == []


def test_a_copy_that_a_retry_topic_cannot_take_is_a_dead_letter() -> None:
    topics = Topics(full="retry.short")

    assert recirculating(topics).place(RECORD, Retry("busy"), 1) == Placed("dead_letter")
    assert topics.one()[1][ERROR] == "too large for retry.short; before that: busy"
    assert topics.sent[0][1].value == b"{}"


def test_a_record_that_no_topic_takes_is_buried_without_its_value() -> None:
    topics = Topics(full="retry.short dead")

    assert recirculating(topics).place(RECORD, Dead("bad"), 1) == Placed("dead_letter")
    headers = topics.one()[1]
    assert headers[ORIGIN] == "orders/3/44"
    assert headers[ERROR] == "without its value, as too large for dead; before that: bad"
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert headers[WITHOUT_VALUE] == f"orders/3/44 2 {digest}"
    assert topics.sent[0][1].value is None


@pytest.mark.parametrize(
    "record",
    [
        RECORD._replace(value=b"{no json"),
        RECORD._replace(headers=[(ID, b"e1"), (ROUND, b"many")]),
    ],
)
def test_a_record_that_cannot_be_read_is_a_dead_letter_at_once(record: Record) -> None:
    topics = Topics()
    retries = recirculating(topics)

    def handle(record: Record) -> Result:
        return Skip(record.event.id)

    result = retries.handling(handle)(record)
    assert isinstance(result, Retry)
    assert retries.place(record, result, 1) == Placed("dead_letter")
    assert topics.one()[1][ERROR] in result.error


def test_exceptions_stand_for_results() -> None:
    exceptions = Exceptions(dead=(KeyError, NonRetriable), skip=(LookupError,))

    assert exceptions.result(KeyError("a")) == Dead("KeyError: 'a'")
    assert exceptions.result(IndexError("a")) == Skip("IndexError: a")
    assert exceptions.result(ValueError("a")) == Retry("ValueError: a")
    assert Exceptions().result(NonRetriable("a")) == Dead("a")
    assert Exceptions(skip=(Undecodable,)).result(Undecodable("a")) == Skip("a")


def test_what_another_member_has_has_not_failed_whatever_settings_say() -> None:
    exceptions = Exceptions(dead=(Exception,), skip=(Exception,))
    assert exceptions.result(TakenOver("a")) == Early("a", timedelta(seconds=1))


def test_a_handlers_exception_is_a_result_of_the_plan() -> None:
    def handle(_: Record) -> Result:
        raise KeyError

    plan = Plan(exceptions=Exceptions(dead=(KeyError,)))

    result = Retries(plan, Topics()).handling(handle)(RECORD)
    assert isinstance(result, Dead)
    assert result.error.startswith("KeyError (test_retries.py:")


def test_a_record_that_came_round_too_often_is_not_handled() -> None:
    handled: list[Record] = []
    retries = Retries(Plan(hop_limit=3), Topics())

    def handle(record: Record) -> Result:
        handled.append(record)
        return Done()

    handler = retries.handling(handle)

    for headers in ([(ROUND, b"3")], [(HOPS, b"2"), (ROUND, b"1")], []):
        assert handler(RECORD._replace(headers=headers)) == Done()
    result = handler(RECORD._replace(headers=[(HOPS, b"3"), (ROUND, b"1")]))
    assert result == Dead("storm: it has come round 4 times, and the limit is 3")
    assert len(handled) == 3


def test_a_handler_of_several_is_not_handed_what_came_round_too_often() -> None:
    handed: list[int] = []

    def handle(records: list[Record]) -> list[Result] | None:
        handed.extend(record.offset for record in records)
        if any(record.offset == 9 for record in records):
            raise KeyError
        return [Skip(str(record.offset)) for record in records]

    handler = Retries(Plan(hop_limit=3), Topics()).handling_batch(handle)
    looped = RECORD._replace(headers=[(ROUND, b"4")])
    first, second, bad = (RECORD._replace(offset=number) for number in (1, 2, 9))

    answers = handler([first, looped, second])
    assert [type(each) for each in answers] == [Skip, Dead, Skip]
    assert handed == [1, 2]
    assert [type(each) for each in handler([bad])] == [Retry]
    with pytest.raises(KeyError):
        handler([first, bad])


def test_a_revoked_partition_is_forgotten_and_others_are_not() -> None:
    retries, other = holding(), RECORD._replace(partition=4)
    for record in (RECORD, other):
        retries.place(record, Retry("down"), 1)

    retries.revoked([("orders", 3)])

    assert retries.as_it_is(RECORD) is RECORD
    assert retries.as_it_is(other) is not other


class Remembering:
    """States that outlive the consumer."""

    def __init__(self) -> None:
        self.states: dict[Place, State] = {}

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, State]:
        return {place: state for place, state in self.states.items() if place[:2] in partitions}

    def keep(self, record: Record, state: envelope.Delivery) -> None:
        self.states[record[:3]] = State(stored(record.identity), state)

    def drop(self, record: Record) -> None:
        self.states.pop(record[:3], None)


def test_the_next_consumer_goes_on_with_the_attempts_and_the_wait() -> None:
    plan, states, topics = Plan(patience=BACKOFF, dead_letters="dead"), Remembering(), Topics()
    first = Retries(plan, topics, states=states, now=Clock())
    held = first.place(RECORD, Retry("down"), 1)
    assert isinstance(held, Held)

    clock = Clock()
    second = Retries(plan, topics, states=states, now=clock)
    second.assigned([("orders", 3)])
    clock.now += 100
    assert second.early(RECORD) == held.after - timedelta(milliseconds=100)
    clock.now += 60_000
    assert second.early(RECORD) is None
    # Its count begins with 1; two attempts were made by then.
    again = second.place(RECORD, Retry("down"), 1)
    assert isinstance(again, Held)
    assert again.attempt == 2
    assert second.place(RECORD, Retry("down"), 2) == Placed("dead_letter")
    assert topics.one()[1]["dovecote_attempt"] == "3"
    second.released(RECORD)
    assert states.states == {}


class Away(Remembering):
    """States that cannot be kept at first."""

    def keep(self, record: Record, state: envelope.Delivery) -> None:
        if record[:3] not in self.states:
            self.states[record[:3]] = State("e1", state)
            raise Outage
        super().keep(record, state)


@pytest.mark.parametrize("result", [Retry("down"), Again(timedelta(seconds=5))])
def test_a_history_that_cannot_be_kept_at_once_counts_its_attempt_once(
    result: Retry | Again,
) -> None:
    retries = Retries(Plan(patience=BACKOFF), Topics(), states=Away(), now=Clock())
    with pytest.raises(Outage):
        retries.place(RECORD, result, 1)
    assert isinstance(retries.place(RECORD, result, 1), Held)
    state = envelope.delivery(retries.as_it_is(RECORD))
    assert (state.attempt, state.round) == ((2, 0) if isinstance(result, Retry) else (1, 1))


def test_a_topic_made_anew_has_other_events_at_the_same_places() -> None:
    states = Remembering()
    Retries(Plan(), Topics(), states=states, now=Clock()).place(RECORD, Retry("down"), 7)
    second = Retries(Plan(), Topics(), states=states, now=Clock())
    second.assigned([("orders", 3)])

    other = RECORD._replace(headers=[(ID, b"e2")])
    assert second.early(other) is None
    assert second.as_it_is(other) is other


def test_a_dead_letter_names_the_group_until_it_is_requeued() -> None:
    topics = Topics(full="dead")
    retries = Retries(Plan(dead_letters="dead"), topics, group="billing", now=Clock())
    retries.place(RECORD, Dead("closed"), 1)

    topic, headers = topics.one()
    assert (topic, headers[GROUP]) == ("dead", "billing")
    letter = RECORD._replace(headers=topics.sent[0][1].headers)
    assert GROUP not in dict(copies.requeued(letter).headers)
