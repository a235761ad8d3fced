"""Steps of a bucket whose state is stored in parts."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from outbox.envelope import Record
from spark_jobs.errors import StateDamaged, StateTooLarge
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.operators.step import Input, StepResult
from spark_jobs.rows.packets import BucketRows
from spark_jobs.stateful import host as stateful
from spark_jobs.stateful import parts
from spark_jobs.stateful.host import Bucket, StatefulConfig
from spark_jobs.stateful.outcome import OperatorTopics, Outcome
from tests.unit.spark_jobs.stateful.stores import Spark

NOW = 1_700_000_000_000
SESSIONS = SessionsSettings.model_validate(
    {"gap": "10s", "close_after": "off", "aggregate": "sum"}
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful, "collect_rarely", lambda: None)
    monkeypatch.setattr(stateful, "_kept", parts.Kept())
    monkeypatch.setattr(parts, "SMALL", 200)


def _bucket(spark: Spark, *, most: int = 1_000_000) -> Bucket:
    config = StatefulConfig(
        operator=SESSIONS,
        topics=OperatorTopics(output="out", late=None, dead_letter="dead"),
        query="q",
        buckets=[7],
        max_bucket_bytes=most,
    )
    bucket = Bucket(config)
    bucket.init(spark)  # type: ignore[arg-type]  # as much of Spark as it uses
    return bucket


def _step(bucket: Bucket, keys: Sequence[str], value: bytes = b"1", at: int = 0) -> Outcome:
    records = [Record("t", 0, n, NOW + at, key.encode(), value, []) for n, key in enumerate(keys)]
    rows = BucketRows([list(column) for column in zip(*records, strict=True)])
    outcome, _ = bucket._outcome(7, rows, NOW, None)
    return Outcome.decode(outcome.encode())


def _fill(spark: Spark, keys: int = 100) -> Bucket:
    bucket = _bucket(spark)
    _step(bucket, [f"k{number}" for number in range(keys)])
    return bucket


def _raising(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the step of sessions raise for a value of 13, with its state half changed."""
    plain = Sessions.step

    def step(
        self: Sessions, state: Any, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[Any]:
        found = plain(self, state, records, now, behind=behind)
        if any(each.value == 13 for each in records):
            raise RuntimeError
        return found

    monkeypatch.setattr(Sessions, "step", step)


def test_a_step_reports_the_keys_and_the_size_of_the_whole_state() -> None:
    spark = Spark()
    bucket = _fill(spark)
    whole = len(spark.map[0,][0])
    outcome = _step(bucket, ["k1", "k2", "new"])
    assert (outcome.keys, outcome.open) == (101, 101)
    assert whole < outcome.size < whole + 200
    assert sorted(spark.map) == [(0,), (1,)]


def test_a_record_that_fails_is_one_dead_letter_also_where_the_state_is_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = Spark()
    bucket = _fill(spark)
    _step(bucket, ["k3"])
    _raising(monkeypatch)

    outcome = _step(bucket, ["k1"], b"13")

    assert [each.topic for each in outcome.outgoing] == ["dead"]
    monkeypatch.setattr(stateful, "_kept", parts.Kept())
    found = _step(_bucket(spark), ["k1", "k3"], at=100_000)
    results = [json.loads(each.value or b"") for each in found.outgoing]
    assert {each["key"]: each["value"] for each in results} == {"k1": 1, "k3": 2}
    assert outcome.keys == found.keys == 100


def test_a_limit_that_an_estimate_passes_is_judged_by_the_whole_state() -> None:
    spark = Spark()
    bucket = _fill(spark)
    estimated = _step(bucket, [*(f"new{number}" for number in range(20))]).size
    measured = len(bucket._stored.whole(7, (spark.get() or (b"",))[0]))
    assert measured < estimated
    # Both of the next steps write the whole state, and only one of them goes on.
    _step(_bucket(spark, most=measured), ["k1"])
    assert [*spark.map] == [(0,)]
    with pytest.raises(StateTooLarge, match=f"state of bucket 7 has {measured} bytes, more than"):
        _step(_bucket(spark, most=measured - 1), ["k1"])


def test_a_part_that_is_missing_ends_the_job_and_no_record_is_blamed() -> None:
    spark = Spark()
    _step(_fill(spark), ["k1"])
    del spark.map[1,]
    stateful._kept.take((("q", repr(SESSIONS)), 7))
    with pytest.raises(StateDamaged, match="part 2 of 2 of the state of bucket 7 is missing"):
        _step(_bucket(spark), ["k1"])
