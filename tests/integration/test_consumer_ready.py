"""A consumer is ready while records wait for their time, and not while something is in the way."""

import threading
import time

import pytest

from dedup import Unavailable
from dedup.rules.policies.results import Result, Retry
from outbox import Event
from tests.support.consuming import Consuming, consuming, event, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import busyness, patient, until

STALL = max(2.0, busyness())


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


def stays_ready(run: Consuming, *, quietly: bool, over: float = 2 * STALL) -> None:
    began = time.monotonic()

    def over_yet() -> bool:
        report = run.consumer.health.ready()
        assert report.ok, report
        assert not quietly or report.reason == "progressing", report
        return time.monotonic() - began > over

    until(over_yet, within=over + 10, what="that the time is over")


@pytest.mark.parametrize("awaited", [False, True])
def test_a_record_that_waits_for_its_next_attempt_leaves_it_ready(
    kafka: str, topic: MakeTopic, *, awaited: bool
) -> None:
    name, retry, dead = topic(), topic(), topic()
    produce(kafka, event(name, "held", 0), event(name, "others", 0))

    def handle(given: Event) -> Result | None:
        return Retry("no") if given.key == "held" else None

    waits = {"base": "60s", "ceiling": "60s", "dead_letter_topic": dead}
    for retries in (waits, {**waits, "tiers": [{"topic": retry}]}):
        group = f"{name}.{len(retries)}"
        with consuming(
            kafka,
            name,
            handle,
            awaited=awaited,
            retries=retries,
            group=group,
            stall_after=f"{STALL:.0f}s",
        ) as run:
            run.has_handled(2)
            until(
                lambda: run.consumer.health.ready().ok, within=20, what="it is ready"
            )  # of this round
            # A record of a retry topic is handled at its time, so nothing stands still.
            stays_ready(run, quietly="tiers" in retries)


def test_an_offset_that_stands_still_is_said_with_the_reason(kafka: str, topic: MakeTopic) -> None:
    name = topic()
    produce(kafka, event(name, "held", 0), event(name, "others", 0))

    def handle(given: Event) -> Result | None:
        return Retry("no luck") if given.key == "held" else None

    waits = {"base": "60s", "ceiling": "60s"}
    with consuming(kafka, name, handle, retries=waits, stall_after="1s") as run:
        said = f"progressing, but {name}/0 has stood at offset 0 for"

        def reason() -> str:
            told = run.consumer.health.ready().reason
            return told if told.startswith(said) else ""

        told = until(reason, within=20, what="that it is said")
        assert told.endswith("with 2 to its end: attempt 1 failed: no luck")
        until(
            lambda: run.count("unmoved_seconds", topic=name) > 1,
            within=20,
            what="that it is measured",
        )


@pytest.mark.parametrize("away", [False, True])
def test_a_handler_that_hangs_or_lacks_its_database_does_not(
    kafka: str, topic: MakeTopic, *, away: bool
) -> None:
    name, release = topic(), threading.Event()
    produce(kafka, event(name, "held", 0), event(name, "hangs", 0))

    def handle(given: Event) -> Result | None:
        if given.key == "held":
            return Retry("no")
        if away:
            msg = "the database is away"
            raise Unavailable(msg)
        release.wait(patient(60))
        return None

    with consuming(
        kafka, name, handle, retries={"base": "60s", "ceiling": "60s"}, stall_after="2s"
    ) as run:
        run.has_handled(2)
        until(
            lambda: "none was completed" in run.consumer.health.ready().reason,
            within=20,
            what="that it is not ready",
        )
        release.set()
