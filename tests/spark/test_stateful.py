"""A stateful job writes what replay says of the same records, once."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from outbox.envelope import ERROR, ID, NOT_BEFORE, ROUND, TIME, parse_time
from outbox.errors import BadSettings
from spark_jobs.errors import QueryFailed
from tests.spark.fix_spark import Supervised
from tests.spark.fix_stateful import T0, MakeStateful, Sent, made_clicks, summing, sums
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient, until

COMMAND = Path(sys.executable).with_name("dovecote")
ROOT = Path(__file__).parents[2]


def _text(values: list[Any]) -> Counter[str]:
    return Counter(json.dumps(value, sort_keys=True) for value in values)


def _event(topic: str, user: str, at: int, says: Any, partition: int) -> Sent:
    value = {"from": user, "to": "b-c", "at": at, "says": says}
    return Sent(topic, None, at, value, partition)


def test_pairing_writes_one_result_per_call_as_replay_says(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    dice = random.Random(5)
    one, other = topic(2), topic(3)
    sides = {"a": {"topic": one, "field": "says"}, "m": {"topic": other, "field": "says"}}
    job = stateful(
        "pairing",
        [one, other],
        key=["from", "to"],
        event_time="at",
        within="60s",
        grace="10m",
        close_after="1500ms",
        max_lag="1m",  # the records are older: the wall clock waits until all are read
        sides=sides,
    ).with_(source={"max_offsets_per_trigger": 120})
    sent = []
    for user in range(20):
        for call in range(3):
            start = T0 + call * 130_000
            for side, partitions in ((one, 2), (other, 3)):
                if dice.random() < 0.8:
                    at = start + dice.randrange(50_000)
                    event = _event(side, f"u-{user}", at, call, dice.randrange(partitions))
                    sent += [event] * dice.choice([1, 1, 2])
    sent.sort(key=lambda each: each.value["at"] + dice.randrange(100_000))
    expected = job.replayed(sent, at=10**9)
    results = [line["value"] for line in expected if line["kind"] == "result"]
    job.send(*sent, Sent(one, None, T0, "no object"), Sent(other, None, T0, {"from": 1}))

    job.run_until(lambda: len(job.values()) >= len(results), "all calls are closed")

    assert _text(job.values()) == _text(results)
    assert job.rows() == len(sent) + 2
    assert len(job.lines) >= 2
    dead = {dict(each.headers)[ERROR] for each in job.dead_letters()}
    assert dead == {b'the value has no field "from"', b'the value has no field "to"'}
    assert len({dict(each.headers)[ID] for each in job.written()}) == len(results)
    again = sum(line["kind"] == "skip" for line in expected)
    assert sum(line.skipped.get("duplicate", 0) for line in job.lines) == again
    assert max(line.largest_bucket for line in job.lines) > 0


def test_sessions_go_on_from_their_checkpoint_and_equal_replay_in_the_order_of_offsets(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    dice = random.Random(7)
    clicks = topic(2)
    job = stateful(
        "sessions",
        [clicks],
        gap="5s",
        grace="3s",
        stream_time="per_partition",
        close_after="off",
        emit="update",
        aggregate="list",
        max_lag="off",
    ).with_(source={"max_offsets_per_trigger": 80})
    sent = [
        Sent(clicks, f"k{key}", T0 + n * 300 + dice.randrange(-9_000, 1), n, key % 2)
        for n, key in enumerate(dice.randrange(8) for _ in range(300))
    ]
    lines = job.replayed(sent, at=0)
    half = len(sent) // 2
    job.send(*sent[:half])
    job.run_until(lambda: job.rows() == half, "half is read")
    job.send(*sent[half:])

    job.run_until(lambda: job.rows() == len(sent), "all is read")

    kinds = ("result", "update", "retract")
    fields = ("kind", "key", "start", "end", "value", "revision")
    expected = [[line[name] for name in fields] for line in lines if line["kind"] in kinds]
    found = [[value[name] for name in fields] for value in job.values()]
    assert _text(found) == _text(expected)
    late = [line["value"] for line in lines if line["kind"] == "late"]
    assert late
    assert _text([json.loads(each.value or b"") for each in job.late()]) == _text(late)
    assert {dict(each.headers)[ERROR] for each in job.late()} == {b"its session is closed"}


def test_another_number_of_buckets_is_refused_and_too_large_a_bucket_stops_the_job(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="5s")
    job.send(Sent(clicks, "k", T0, 1))
    small = job.with_(state={"max_bucket_bytes": 10})
    with pytest.raises(
        QueryFailed, match=r"more than `state\.max_bucket_bytes`.*reads .*/0 from offset 0 to 0;"
    ):
        small.run_until(lambda: False, "it fails")

    changed = job.with_(state={"buckets": 1})
    with pytest.raises(BadSettings, match=r"made with state\.buckets = 3, not 1"):
        changed.run_until(lambda: False, "it fails")


def test_times_of_the_future_are_set_aside_or_if_they_are_meant_written_as_of_now(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    hour, now = 3_600_000, time.time_ns() // 1_000_000
    clicks = topic(message_timestamp_after_max_ms=str(2**62))
    fields = {"gap": "1s", "close_after": "1s", "stream_time": "global", "aggregate": "list"}
    job = stateful("sessions", [clicks], **fields)
    meant = stateful("sessions", [clicks], **fields, max_ahead="off")
    times = [now, now + 365 * 24 * hour, now + 10, now * 1_000_000]
    job.send(*(Sent(clicks, f"k{n}", each, n) for n, each in enumerate(times)))

    job.run_until(lambda: len(job.written()) == 3, "all that is believed is closed")
    meant.run_until(lambda: len(meant.written()) == 4, "all is closed")

    assert sorted(each["value"] for each in job.values()) == [[0], [2], [3]]
    (late,) = job.late()
    assert (late.value, late.key) == (b"1", b"k1")
    assert b"is ahead of the clock" in (dict(late.headers)[ERROR] or b"")
    assert [line.skipped for line in job.lines if line.skipped] == [{"ahead": 1}]
    assert sum(line.dead + line.restamped for line in job.lines) == 0
    assert sum(line.restamped for line in meant.lines) == 1
    assert meant.dead_letters() == []
    (written,) = (each for each in meant.written() if each.key == b"k1")
    assert now <= written.timestamp <= time.time_ns() // 1_000_000
    happened = datetime.fromtimestamp(times[1] / 1000, UTC)
    assert parse_time((dict(written.headers)[TIME] or b"").decode()) == happened


def test_a_delayed_record_goes_on_when_it_is_due_as_it_came(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    retry = topic()
    job = stateful("delay", [retry])
    due = time.time_ns() // 1_000_000 + 4_000
    job.send(
        Sent(retry, "k", T0, {"n": 1}, 0, [(NOT_BEFORE, str(due).encode()), (ROUND, b"3")]),
        Sent(retry, None, T0, {"n": 2}),
    )

    job.run_until(lambda: len(job.written()) == 2, "both have gone on")

    # By key: on a busy machine, the job begins when both are due.
    at_once, later = sorted(job.written(), key=lambda each: each.key or b"")
    assert (at_once.key, at_once.value) == (None, b'{"n": 2}')
    assert (later.key, later.value) == (b"k", b'{"n": 1}')
    assert dict(later.headers)[ROUND] == b"3"
    assert due <= later.timestamp


def test_a_job_that_is_killed_writes_every_result_once(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    clicks = topic(2)
    job, sent = summing(stateful, clicks), made_clicks(clicks, 600)
    job.send(*sent)
    command = [str(COMMAND), "spark", "sessions", "--config", str(job.file())]
    command += ["--master", "local[2]"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Supervised(command, environ, job.folder / "log") as sessions:
        until(
            lambda: sessions.goes_on() and len(job.written()) > 10,
            within=120,
            what="some is written",
        )
        children = psutil.Process(sessions.process.pid).children(recursive=True)
    _, alive = psutil.wait_procs(children, timeout=patient(30))
    assert alive == []
    expected = [line for line in job.replayed(sent, at=10**9) if line["kind"] == "result"]
    assert len(job.written()) < len(expected)

    job.run_until(lambda: len(job.written()) >= len(expected), "the rest is written")

    assert sums(job.values()) == sums(expected)


def test_a_check_tells_what_is_right_and_what_is_wrong(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    job = stateful("sessions", [topic()], gap="5s")
    for checked, wrong in (
        (job, []),
        (job.with_(operator={"aggregate": "nowhere:thing"}), ["operator"]),
        (job.with_(source={"topics": ["not-there"]}), ["topics"]),
    ):
        command = [str(COMMAND), "spark", "sessions", "--config", str(checked.file()), "--check"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=patient(60), check=False
        )

        found = [
            line.split(":")[0].split()[1] for line in done.stdout.splitlines() if "FAIL" in line
        ]
        assert (done.returncode, found) == (1 if wrong else 0, wrong)
        assert len(done.stdout.splitlines()) == 5
