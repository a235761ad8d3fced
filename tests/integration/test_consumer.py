"""`dedup.Consumer` with a real Kafka."""

import random
import threading
from collections.abc import Collection
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dedup.consumer import Consumer
from dedup.retries.aside import Held, HoldInPlace, Outage, Partition, Placed, Unfinished
from dedup.rules.policies.results import Again, Result, Retry
from dedup.rules.record import Record
from outbox import Event
from tests.support.consuming import (
    committed,
    consuming,
    end_of,
    event,
    produce,
    settings,
    transact,
)
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient, until

SKIPS = "dovecote.consumer.skipped"
PROTOCOLS = [
    {"assignor": "range"},
    {"assignor": "cooperative-sticky"},
    {"protocol": "consumer"},
]


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@pytest.mark.parametrize("awaited", [False, True])
def test_keys_are_handled_side_by_side_and_each_in_order(
    kafka: str, topic: MakeTopic, *, awaited: bool
) -> None:
    name = topic(4)
    keys = [f"k{n}" for n in range(20)]
    produce(kafka, *(event(name, key, n) for n in range(60) for key in keys))
    at_work: set[object] = set()
    most = 0
    dice = random.Random(7)

    def handle(given: Event) -> None:
        nonlocal most
        assert given.key not in at_work
        at_work.add(given.key)
        most = max(most, len(at_work))
        if not awaited:
            threading.Event().wait(dice.random() / 200)
        at_work.discard(given.key)

    with consuming(kafka, name, handle, awaited=awaited, concurrency=16, policy="every") as run:
        run.has_handled(1200)
        for key in keys:
            assert run.of_key(key) == [f"{key}-{n}" for n in range(60)]
        until(lambda: run.count("records_total") == 1200, within=10, what="all completed")
    assert awaited or most > 4
    assert [committed(kafka, name, n)[0] for n in range(4)] == [
        end_of(kafka, name, n) for n in range(4)
    ]


def test_transaction_markers_and_aborted_records_are_stepped_over(
    kafka: str, topic: MakeTopic
) -> None:
    name = topic()
    for number in range(12):
        transact(kafka, event(name, "k", number), commit=number % 4 != 1)
    kept = [f"k-{number}" for number in range(12) if number % 4 != 1]
    with consuming(kafka, name) as run:
        until(
            lambda: committed(kafka, name)[0] == end_of(kafka, name),
            within=20,
            what="the committed offset at the end, behind the last marker",
        )
        assert run.ids == kept
        until(lambda: run.count("lag_rows") == 0, within=10, what="no lag")


def test_a_restart_repeats_nothing_that_was_completed(kafka: str, topic: MakeTopic) -> None:
    name = topic()
    release = threading.Event()
    produce(kafka, event(name, "stuck", 0), *(event(name, f"k{n % 50}", n) for n in range(400)))
    produce(kafka, event(name, "stuck", 1))

    def handle(given: Event) -> None:
        if given.id == "stuck-0":
            release.wait(patient(30))

    with consuming(kafka, name, handle, drain="200ms") as run:
        run.has_handled(401)
        until(lambda: run.count("records_total") == 400, within=10, what="others completed")
    release.set()
    assert committed(kafka, name)[0] == 0
    with consuming(kafka, name) as run:
        run.has_handled(2)
        assert run.ids == ["stuck-0", "stuck-1"]
        until(lambda: committed(kafka, name)[0] == 402, within=10, what="all committed")
        until(lambda: run.count("records_remembered_total") == 400, within=10, what="remembered")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: "-".join(each.values()))
def test_members_come_and_go_and_nothing_is_lost_repeated_or_out_of_order(
    kafka: str, topic: MakeTopic, protocol: dict[str, Any]
) -> None:
    name = topic(4)
    keys = [f"k{n}" for n in range(12)]
    numbers = iter(range(10_000))
    sent: list[Event] = []
    order: list[Event] = []

    def more(rounds: int) -> None:
        now = [event(name, key, next(numbers)) for _ in range(rounds) for key in keys]
        produce(kafka, *now)
        sent.extend(now)

    def handle(given: Event) -> None:
        order.append(given)
        threading.Event().wait(0.001)

    def all_handled() -> bool:
        return {each.id for each in order} == {each.id for each in sent}

    def has_a_share() -> bool:
        more(2)
        return bool(second.handled)

    more(20)
    with consuming(kafka, name, handle, **protocol) as first:
        first.has_handled(10)
        with consuming(kafka, name, handle, **protocol) as second:
            until(lambda: second.consumer.health.ready().ok, within=20, what="a second member")
            until(has_a_share, within=30, what="its share")
            more(20)
        more(20)
        until(all_handled, within=30, what="all handled")
        assert first.count("commits_total", outcome="failed") == 0
        assert second.count("commits_total", outcome="failed") == 0
        assert first.count("rebalances_total", kind="lost") == 0
    assert len(order) == len(sent)
    for key in keys:
        handled = [int(each.id.split("-")[1]) for each in order if each.key == key]
        assert all(a < b for a, b in pairwise(handled))


def test_what_cannot_be_handled_holds_its_own_key_and_the_offset_and_says_why(
    kafka: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    large = "x" * 900_000
    produce(
        kafka,
        event(name, "unreadable", 0, b"{"),
        event(name, "failing", 0),
        event(name, "failing", 1),
        event(name, "large", 0, {"text": large}),
        *(event(name, f"k{n % 20}", n) for n in range(100)),
    )

    def handle(given: Event) -> None:
        if given.id == "failing-0":
            msg = "no such order"
            raise LookupError(msg)

    aside = HoldInPlace(timedelta(milliseconds=20), timedelta(milliseconds=100))
    with consuming(kafka, name, handle, aside=aside) as run:
        until(lambda: run.count("records_total") == 101, within=20, what="all others completed")
        assert [e.value for e in run.handled if e.key == "large"] == [{"text": large}]
        assert "failing-1" not in run.ids
        again = f"{name}/0/1 failed (attempt 2)"
        until(lambda: again in caplog.text, within=10, what="it is tried again")
        until(lambda: run.count("holds_total") > 4, within=10, what="both tried again")
    assert committed(kafka, name)[0] == 0
    assert f"{name}/0/0 failed (attempt 1)" in caplog.text
    assert "is not JSON" in caplog.text
    assert "LookupError: no such order" in caplog.text


class Notes(HoldInPlace):
    """Records its calls; holds failed records in memory, once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, object]] = []
        self.away = True

    def assigned(self, partitions: Collection[Partition]) -> None:
        self.told.append(("assigned", set(partitions)))

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        if isinstance(result, Again):
            return Held(timedelta(milliseconds=10))
        if self.away:
            self.told.append(("away", record.event.id))
            msg = "the retry topic cannot be written to"
            raise Outage(msg)
        self.told.append(("placed", (record.event.id, attempt, result)))
        return Placed("retry")

    def released(self, record: Record) -> None:
        self.told.append(("released", record.event.id))

    def revoked(self, partitions: Collection[Partition]) -> None:
        self.told.append(("revoked", set(partitions)))


@pytest.mark.parametrize("awaited", [False, True])
def test_what_fails_leaves_through_the_seam_and_an_outage_there_holds_the_offset_back(
    kafka: str, topic: MakeTopic, *, awaited: bool
) -> None:
    name = topic()
    produce(kafka, event(name, "a", 0), event(name, "b", 0), event(name, "a", 1))
    aside = Notes()
    tries: list[str] = []

    def handle(given: Event) -> Result | None:
        tries.append(given.id)
        if given.id == "a-0":
            return Retry("no")
        if given.id == "b-0" and tries.count("b-0") < 3:
            return Again(timedelta(0))
        return None

    with consuming(kafka, name, handle, aside=aside, awaited=awaited) as run:
        until(lambda: ("away", "a-0") in aside.told, within=20, what="an outage")
        until(lambda: ("released", "b-0") in aside.told, within=20, what="b completed")
        assert committed(kafka, name)[0] <= 0
        assert "a-1" not in tries
        aside.away = False
        until(lambda: "a-1" in tries, within=20, what="the key goes on")
        until(lambda: committed(kafka, name)[0] == 3, within=20, what="all committed")
        assert run.count("records_total", result="retry") == 1
    assert ("placed", ("a-0", 1, Retry("no"))) in aside.told
    assert tries.count("a-0") == 1
    assert aside.told[0] == ("assigned", {(name, 0)})
    assert aside.told[-1] == ("revoked", {(name, 0)})


@pytest.mark.parametrize("awaited", [False, True])
def test_copies_are_skipped_with_their_reasons(
    kafka: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture, *, awaited: bool
) -> None:
    caplog.set_level("DEBUG", SKIPS)
    name = topic()
    copies = [event(name, "k", n) for n in (0, 0, 1, 0, 1)]
    produce(kafka, *copies, event(name, None, 0), event(name, None, 0))
    with consuming(kafka, name, awaited=awaited) as run:
        until(lambda: run.count("records_total") == 7, within=20, what="all completed")
        until(
            lambda: run.count("records_skipped_total", reason="duplicate") == 3,
            within=20,
            what="copies are counted",
        )
        assert run.of_key("k") == ["k-0", "k-1"]
        assert run.count("records_total", result="handled") == 4
    assert f"{name}/0 key k: 1 skipped, duplicate of k-1: 4" in caplog.text
    (told,) = [each for each in caplog.records if each.levelname == "INFO" and each.name == SKIPS]
    assert told.getMessage().startswith("3 skipped: 3 duplicate; the first: ")


def test_a_slow_handler_costs_neither_the_membership_nor_other_keys(
    kafka: str, topic: MakeTopic
) -> None:
    name = topic()
    produce(kafka, event(name, "slow", 0), *(event(name, f"k{n}", n) for n in range(50)))
    pause, others = threading.Event(), threading.Event()

    def handle(given: Event) -> None:
        if given.key == "slow":
            pause.wait(7)
            others.wait(patient(60))

    short = {"session.timeout.ms": 6000, "max.poll.interval.ms": 6000}
    with consuming(kafka, name, handle, kafka=short, concurrency=2) as run:
        until(lambda: run.count("records_total") == 50, within=5, what="other keys")
        others.set()
        until(lambda: run.count("records_total") == 51, within=20, what="the slow one")
        assert run.count("rebalances_total") == 1
        assert run.count("commits_total", outcome="failed") == 0
        assert run.ids.count("slow-0") == 1


@pytest.mark.parametrize("awaited", [False, True])
def test_a_handler_of_several_gets_each_key_in_order_and_one_bad_event_fails_alone(
    kafka: str, topic: MakeTopic, *, awaited: bool
) -> None:
    name = topic()
    produce(kafka, *(event(name, f"k{n % 30}", n) for n in range(300)))
    sizes: list[int] = []
    handled: list[Event] = []

    def sync(events: list[Event]) -> list[Result | None]:
        sizes.append(len(events))
        if any(each.id == "k7-7" for each in events):
            msg = "not this one"
            raise ValueError(msg)
        handled.extend(events)
        return [None] * len(events)

    async def on_loop(events: list[Event]) -> list[Result | None]:
        return sync(events)

    given = settings(kafka, name, handler_batch=40, concurrency=4, policy="every")
    consumer = Consumer(given, on_loop if awaited else sync)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        until(lambda: len(handled) >= 290, within=20, what="all but the key of the bad one")
    finally:
        consumer.stop()
        thread.join(patient(20))
    assert {each.key for each in handled} == {f"k{n}" for n in range(30) if n != 7}
    for key in {each.key for each in handled}:
        numbers = [int(each.id.split("-")[1]) for each in handled if each.key == key]
        assert numbers == sorted(numbers)
    assert max(sizes) > 1
