"""Reports on a record that holds its key."""

import logging
from datetime import timedelta

import pytest

from dedup.retries.aside import Held, Placed
from dedup.rules.lanes.lanes import Stretch
from dedup.rules.policies.policies import Failed
from dedup.rules.policies.results import Dead, Early, Retry
from dedup.rules.record import Record
from dedup.serving import runs
from dedup.serving.handover import HandoverReport
from dedup.serving.runs import RunProgress
from dovecote.process.rarely import Rarely

RECORD = Record("orders", 3, 44, 0, b"k", b"{}", ())


@pytest.fixture(autouse=True)
def unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test all lines of its second: those of other tests may have been many."""
    monkeypatch.setattr(runs, "_rarely", Rarely(logging.getLogger("dovecote.consumer")))


@pytest.mark.parametrize(
    ("result", "answer", "says"),
    [
        (
            Retry("down"),
            Held(timedelta(seconds=2)),
            "failed (attempt 1) and holds its key for 2.0 s",
        ),
        (
            Retry("down"),
            Held(timedelta(seconds=2), 4),
            "failed (attempt 4) and holds its key for 2.0 s",
        ),
        (
            Dead("down"),
            Held(timedelta(minutes=5), 1, given_up=True),
            "is Dead (attempt 1) and holds its key for 300.0 s, as no dead_letter_topic is set",
        ),
    ],
)
def test_the_log_says_which_attempt_it_was_and_why_it_is_not_elsewhere(
    result: Retry | Dead, answer: Held, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    progress = RunProgress(Stretch[Record]("orders", 3, 1, {}), iter(()))
    report = HandoverReport()
    assert progress.take(Failed(RECORD, result), report) is None

    assert progress.answered(answer, report) == answer.after.total_seconds()
    assert caplog.messages[-1] == f"orders/3/44 {says}: down"


def test_only_a_time_that_was_set_for_a_record_is_a_schedule() -> None:
    progress, report = RunProgress(Stretch[Record]("orders", 3, 1, {}), iter(())), HandoverReport()

    progress.take(Failed(RECORD, Early("not due", timedelta(hours=1), scheduled=True)), report)
    assert progress.scheduled
    progress.take(Failed(RECORD, Early("Postgres is away", timedelta(seconds=1))), report)
    assert not progress.scheduled
    progress.take(Failed(RECORD, Retry("down")), report)
    progress.answered(Held(timedelta(minutes=5)), report)
    assert progress.scheduled
    progress.outage(OSError("Kafka is away"))
    assert not progress.scheduled


def test_a_stretch_knows_why_its_records_wait_until_they_are_completed() -> None:
    stretch, report = Stretch[Record]("orders", 3, 1, {}), HandoverReport()
    progress = RunProgress(stretch, iter(()))
    progress.take(Failed(RECORD, Early("Postgres is away", timedelta(seconds=1))), report)
    assert stretch.waits == {44: "Postgres is away"}
    progress.take(Failed(RECORD, Retry("down")), report)
    progress.outage(OSError("Kafka is away"))
    assert stretch.waits == {44: "it cannot be set aside: OSError: Kafka is away"}
    progress.answered(Held(timedelta(minutes=5), 3), report)
    assert stretch.waits == {44: "attempt 3 failed: down"}
    progress.take(Failed(RECORD, Retry("down")), report)
    progress.answered(Placed("dead_letter"), report)
    assert stretch.waits == {}
