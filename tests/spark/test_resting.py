"""An idle stateful job has few batches, and handles what comes or is due as if it had many."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from spark_jobs.query import resting
from spark_jobs.query.batch import Alarms
from spark_jobs.rows.buckets import NONE
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful import state
from spark_jobs.stateful.settings import StatefulSettings
from tests.spark.fix_spark import Supervised
from tests.spark.fix_stateful import START_SECONDS, MakeStateful, Sent, Stateful
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient, until

COMMAND = Path(sys.executable).with_name("dovecote")
ROOT = Path(__file__).parents[2]
CLOSE_SECONDS = 8
LATE_SECONDS = 5
HELD_SECONDS = 1.5


def _click(topic: str, key: str) -> Sent:
    return Sent(topic, key, time.time_ns() // 1_000_000, 1)


def test_a_job_rests_until_something_comes_or_is_due(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="5s", close_after=f"{CLOSE_SECONDS}s")
    with job.running() as failed:
        job.send(_click(clicks, "k"))
        until(lambda: failed or job.rows() == 1, within=START_SECONDS, what="it is read")
        until(lambda: failed or job.values(), within=CLOSE_SECONDS + LATE_SECONDS, what="closed")
        job.send(_click(clicks, "l"))
        until(lambda: failed or job.rows() == 2, within=LATE_SECONDS, what="the next is read")

    first, closing, second = job.lines
    # With a batch at each trigger there would be ten a second, or as many as get done.
    assert closing.batch - first.batch <= 4
    assert second.batch - closing.batch <= 4
    # Otherwise a batch would count the time for which it was held.
    assert max(each.seconds for each in (closing, second)) < patient(CLOSE_SECONDS)


def test_a_job_that_is_killed_at_rest_closes_what_is_due(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="5s", close_after="20s")
    job.send(*(_click(clicks, key) for key in "abc"))
    _kill_at_rest(job)

    job.run_until(lambda: len(job.values()) == 3, "they are closed")

    assert [each["value"] for each in job.values()] == [1, 1, 1]


def test_a_job_that_starts_again_learns_from_its_state_when_to_rest(
    stateful: MakeStateful, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="5s", close_after="1h")
    job.send(*(_click(clicks, key) for key in "abc"))
    job.run_until(lambda: job.rows() == 3, "they are read")
    monkeypatch.setattr(resting, "_QUIET_SECONDS", 0.0)
    found: list[Alarms] = []

    def alarms(spark: SparkSession, settings: StatefulSettings) -> Alarms:
        found.append(state.alarms(spark, settings))
        return found[-1]

    monkeypatch.setattr(stateful_job, "stored_alarms", alarms)

    rests = _Rests(job)
    job.run_until(lambda: found and rests(), "a batch that is begun and not done lasts")

    (learnt,) = found
    due = [alarm for alarm in learnt.values() if alarm != NONE]
    assert due
    assert min(due) > time.time_ns() // 1_000_000


def test_a_job_that_ended_between_two_batches_closes_what_is_due(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="5s", close_after="30s")
    job.send(*(_click(clicks, key) for key in "abc"))
    job.run_until(lambda: job.rows() == 3, "they are read")
    _forget_begun(job)
    assert job.values() == []

    job.run_until(lambda: len(job.values()) == 3, "they are closed")

    assert [each["value"] for each in job.values()] == [1, 1, 1]


def test_a_job_that_starts_again_with_a_shorter_wait_closes_by_it_with_no_record(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="5s", close_after="1h")
    job.send(*(_click(clicks, key) for key in "abc"))
    job.run_until(lambda: job.rows() == 3, "they are read")
    assert job.values() == []

    shorter = job.with_(operator={"close_after": "1s"})
    shorter.run_until(lambda: len(job.values()) == 3, "they are closed")

    assert [each["value"] for each in job.values()] == [1, 1, 1]


def _forget_begun(job: Stateful) -> None:
    """Leave the checkpoint as it is before Spark records that it begins another batch."""
    done, newest = _newest(job, "commits"), _newest(job, "offsets")
    offsets = Path(job.settings.spark.checkpoint, "offsets")
    for number in range(done + 1, newest + 1):
        for name in (f"{number}", f".{number}.crc"):
            (offsets / name).unlink(missing_ok=True)
    assert _newest(job, "offsets") == done


def _kill_at_rest(job: Stateful) -> None:
    """Run the job as a process of its own until it rests, and kill it."""
    command = [str(COMMAND), "spark", "sessions", "--config", str(job.file())]
    command += ["--master", "local[2]"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    rests = _Rests(job)
    with Supervised(command, environ, job.folder / "log") as sessions:
        until(
            lambda: sessions.goes_on() and rests(),
            within=START_SECONDS,
            what="a batch that is begun and not done lasts",
        )
        children = psutil.Process(sessions.process.pid).children(recursive=True)
    _, alive = psutil.wait_procs(children, timeout=patient(30))
    assert alive == []


class _Rests:
    """Checks that the same batch has been in progress for a while."""

    def __init__(self, job: Stateful) -> None:
        self._job, self._begun, self._since = job, -1, 0.0

    def __call__(self) -> bool:
        newest, done = (_newest(self._job, log) for log in ("offsets", "commits"))
        if newest != self._begun or newest == done:
            self._begun, self._since = newest, time.monotonic()
        return done >= 0 and time.monotonic() - self._since > HELD_SECONDS


def _newest(job: Stateful, log: str) -> int:
    """Return the number of the newest batch in one of Spark's logs; -1: there is none."""
    folder = Path(job.settings.spark.checkpoint, log)
    names = (each.name for each in folder.glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)
