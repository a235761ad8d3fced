"""A trial of a handler that takes a transaction, and of whole schedules of retries."""

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dedup import Backoff, Dead, Done, Inbox, Plan, Result, Retry, Skip, Tier, Trial, Unavailable
from dedup.rules.policies.results import Again
from dedup.testing import StillWaiting
from outbox import BadSettings, Event, InvalidEvent, event, write, write_async
from outbox.testing import recorded

BACKOFF = Backoff(base=timedelta(seconds=10), ceiling=timedelta(minutes=1), max_attempts=4)
HOLDING = Plan(patience=BACKOFF, dead_letters="dead")
TIERS = Plan(
    patience=BACKOFF,
    dead_letters="dead",
    tiers=[Tier("retry"), Tier("retry.later", timedelta(seconds=15))],
)


def order(id_: str, key: str = "k") -> Event:
    return Event(topic="orders", key=key, type="Placed", value={}, id=id_)


def bill(event: Event, tx: Any) -> None:
    tx.execute("INSERT INTO bills VALUES (%s)", [event.id])
    write(tx, Event(topic="bills", key=event.key, type="Billed", value={"of": event.id}))


def test_a_handler_has_its_effects_once_and_writes_on_the_transaction() -> None:
    with recorded() as conn:
        trial = Trial(bill, tx=conn)
        trial.feed(order("e1"), order("e2"))
        trial.feed(order("e1"))

    assert trial.ids("handled") == ["e1", "e2"]
    assert trial.outcomes[-1].reason == "handler: duplicate of e1"
    assert [event.value for event in conn.committed] == [{"of": "e1"}, {"of": "e2"}]


def test_without_a_policy_the_inbox_alone_skips_what_was_committed() -> None:
    with recorded() as conn:
        trial = Trial(bill, tx=conn, policy="every")
        trial.feed(order("e1"), order("e1"))

    assert trial.ids("handled") == ["e1"]
    assert trial.ids("skipped") == ["e1"]
    assert len(conn.committed) == 1


@pytest.mark.parametrize("answer", [Retry("busy"), Dead("no"), ValueError("wrong")])
def test_a_failure_rolls_back_what_the_handler_wrote(answer: Result | Exception) -> None:
    answers = [answer]

    def handle(event: Event, tx: Any) -> Result:
        bill(event, tx)
        if not answers:
            return Done()
        result = answers.pop()
        if isinstance(result, Exception):
            raise result
        return result

    with recorded() as conn:
        trial = Trial(handle, tx=conn, plan=HOLDING)
        trial.feed(order("e1"))
        assert conn.events == []
        trial.finish()

    dead = isinstance(answer, Dead)
    assert [event.value for event in conn.committed] == ([] if dead else [{"of": "e1"}])


def test_an_answer_to_skip_or_to_come_again_commits() -> None:
    answers: list[Result] = [Again(timedelta(seconds=5)), Skip("enough")]

    def handle(event: Event, tx: Any) -> Result:
        bill(event, tx)
        return answers.pop(0)

    with recorded() as conn:
        trial = Trial(handle, tx=conn, plan=TIERS)
        trial.feed(order("e1"))
        trial.finish()

    assert len(conn.committed) == 2
    assert trial.ids("skipped") == ["e1"]


def test_an_async_handler_gets_a_transaction_that_is_awaited() -> None:
    async def handle(event: Event, tx: Any) -> None:
        await write_async(tx, Event(topic="bills", type="Billed", value=event.id))

    for kind in ("psycopg_async", "asyncpg"):
        with recorded(kind) as conn:
            Trial(handle, tx=conn).feed(order("e1"), order("e2"))
        assert [event.value for event in conn.committed] == ["e1", "e2"]


def test_a_transaction_may_be_any_object_or_be_begun() -> None:
    seen: list[Any] = []

    @contextmanager
    def begin() -> Any:
        seen.append("begin")
        yield "tx"
        seen.append("commit")

    Trial(lambda event, tx: seen.append((event.id, tx)), begin=begin).feed(order("e1"))
    assert seen == ["begin", ("e1", "tx"), "commit"]

    seen.clear()
    Trial(lambda event, tx: seen.append((event.id, tx)), tx=None).feed(order("e1"))
    assert seen == [("e1", None)]


def test_arguments_that_do_not_fit_are_refused_at_once() -> None:
    with pytest.raises(BadSettings, match=r"is given an event: missing"):
        Trial(bill)
    with pytest.raises(BadSettings, match=r"is given an event and tx: too many"):
        Trial(lambda _: None, tx=None)
    with pytest.raises(BadSettings, match="tx or begin, not both"):
        Trial(bill, tx=None, begin=lambda: None)
    with pytest.raises(BadSettings, match="needs begin="):
        Trial(bill, tx=None, inbox=Inbox("a"))


def test_a_whole_schedule_is_over_in_an_instant() -> None:
    trial = Trial(lambda _: Retry("busy"), plan=TIERS)
    trial.feed(order("e1"))
    trial.finish()

    tried = [each for each in trial.outcomes if each.what != "waits"]  # in the queue of a tier
    assert [(each.what, each.attempt) for each in tried] == [
        ("retry", 1),
        ("retry", 2),
        ("retry", 3),
        ("dead_letter", 4),
    ]
    delays = [late.at - early.at for early, late in pairwise(tried)]
    full = [timedelta(seconds=each) for each in (10, 20, 40)]
    assert all(each / 2 <= delay <= each for delay, each in zip(delays, full, strict=True))
    later = timedelta(seconds=15)
    topics = ["retry.later" if delay >= later else "retry" for delay in delays]
    assert [each.to for each in tried] == [*topics, "dead"]
    assert trial.waiting == []


def test_a_key_that_is_held_counts_the_same_attempts() -> None:
    trial = Trial(lambda _: Retry("busy"), plan=HOLDING)
    trial.feed(order("e1"))
    assert trial.waiting == ["e1"]
    trial.finish()

    assert [(each.what, each.attempt) for each in trial.outcomes] == [
        ("held", 1),
        ("held", 2),
        ("held", 3),
        ("dead_letter", 4),
    ]


def test_the_attempt_that_succeeds_has_its_number() -> None:
    answers: list[Result] = [Retry("busy"), Retry("busy"), Done()]
    for plan in (TIERS, HOLDING):
        left = list(answers)
        trial = Trial(lambda _, left=left: left.pop(0), plan=plan)
        trial.feed(order("e1"))
        trial.finish()
        assert (trial.outcomes[-1].what, trial.outcomes[-1].attempt) == ("handled", 3)


def test_what_never_ends_is_named() -> None:
    def away(_: Event) -> None:
        msg = "the bank is away"
        raise Unavailable(msg)

    trial = Trial(away, plan=HOLDING)
    trial.feed(order("e1"))
    said = r"these still wait: e1 \(the bank is away\); give finish\(\) more time$"
    with pytest.raises(StillWaiting, match=said):
        trial.finish(within=timedelta(minutes=3))


def test_what_cannot_be_given_up_for_want_of_a_topic_is_said() -> None:
    trial = Trial(lambda _: Dead("no such order"))
    trial.feed(order("e1"))
    said = r"e1 \(no such order\); .* or give the plan a topic for dead_letters$"
    with pytest.raises(StillWaiting, match=said):
        trial.finish()


def test_objects_of_declared_classes_are_fed_as_they_would_be_written() -> None:
    @event("Paid", topic="orders", key="order")
    @dataclass
    class Paid:
        order: int

    def handle(event: Event[Paid]) -> None:
        seen.append((event.key, event.value))

    seen: list[tuple[object, object]] = []
    trial = Trial(handle)
    trial.feed(Paid(7))
    assert seen == [("7", Paid(7))]
    with pytest.raises(InvalidEvent, match=r"an object of a class with @event\(…\), not dict"):
        trial.feed({"order": 7})


def test_an_async_object_and_an_ordinary_handler_do_not_fit() -> None:
    with recorded("asyncpg") as conn:
        trial = Trial(bill, tx=conn, plan=HOLDING)
        (outcome,) = trial.feed(order("e1"))
    assert "has to be awaited, and the handler is not async" in outcome.reason
