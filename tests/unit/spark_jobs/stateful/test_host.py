"""Sessions that the wall clock should close are closed in the batch of its beat."""

import pytest

from outbox.envelope import Record
from spark_jobs.errors import StateDamaged
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.reading import OperatorSettings
from spark_jobs.operators.settings import DelaySettings, SessionsSettings
from spark_jobs.operators.step import NEVER
from spark_jobs.rows.buckets import NONE
from spark_jobs.rows.packets import BucketRows
from spark_jobs.stateful import host as stateful
from spark_jobs.stateful.host import Bucket, StatefulConfig, ticked
from spark_jobs.stateful.outcome import OperatorTopics, Outcome
from tests.unit.spark_jobs.stateful.stores import Spark

BEAT = 1_700_000_000_000
SESSIONS = SessionsSettings.model_validate({"gap": "10s", "close_after": "3s"})


@pytest.fixture(autouse=True)
def _collecting_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful, "collect_rarely", lambda: None)


def _bucket(spark: Spark, query: str, operator: OperatorSettings = SESSIONS) -> Bucket:
    config = StatefulConfig(
        operator=operator,
        topics=OperatorTopics(output="out", late=None, dead_letter="dead"),
        query=query,
        buckets=[0],
        max_bucket_bytes=1_000_000,
    )
    bucket = Bucket(config)
    bucket.init(spark)  # type: ignore[arg-type]  # as much of Spark as it uses
    return bucket


def _rows(record: Record) -> BucketRows:
    return BucketRows([[each] for each in record])


def _closed(spark: Spark, bucket: Bucket, now: int) -> int:
    """Return how many sessions the batch that begins at `now` closes."""
    found = [bucket._outcome(0, BucketRows(), now, moment)[0] for moment in spark.due(now)]
    return sum(len(Outcome.decode(each.encode()).outgoing) for each in found)


@pytest.mark.parametrize(("late", "later"), [(0, 0), (23, 4), (4, 23), (99, 0), (0, 99)])
def test_batches_that_begin_late_on_their_beats_close_in_as_many_beats(
    late: int, later: int
) -> None:
    spark = Spark()
    bucket = _bucket(spark, f"q{late}-{later}")
    record = Record("t", 0, 0, BEAT, b"k", b"{}", [])
    bucket._outcome(0, _rows(record), BEAT + late, None)
    assert [_closed(spark, bucket, BEAT + 1000 * beat + later) for beat in (1, 2, 3)] == [0, 0, 1]


def test_a_timer_is_never_set_for_a_moment_that_has_passed() -> None:
    spark = Spark()
    bucket = _bucket(spark, "off the beat")
    now = BEAT + 150
    bucket._outcome(0, _rows(Record("t", 0, 0, BEAT, b"k", b"{}", [])), now, None)
    (moment,) = spark.timers
    assert moment == ticked(now) + 3000
    assert _closed(spark, bucket, moment) == 1


def test_each_step_tells_when_the_bucket_will_be_called() -> None:
    spark = Spark()
    bucket = _bucket(spark, "alarms")
    record = Record("t", 0, 0, BEAT, b"k", b"{}", [])
    _, alarm = bucket._outcome(0, _rows(record), BEAT, None)
    assert {alarm} == spark.timers

    while spark.timers:
        (moment,) = spark.due(max(spark.timers))
        _, alarm = bucket._outcome(0, BucketRows(), moment, moment)
        assert spark.timers == ({alarm} - {NONE})
    assert alarm == NONE


def test_a_record_that_waits_longer_than_spark_can_count_has_an_alarm_that_never_comes() -> None:
    spark = Spark()
    bucket = _bucket(spark, "never", DelaySettings(max_ahead=None))
    record = Record("t", 0, 0, BEAT, b"k", b"{}", [("dovecote_not_before", b"%d" % (2**63 - 1))])
    bucket._outcome(0, _rows(record), BEAT, None)
    assert spark.timers == {NEVER}


def test_the_clock_ticks_in_tenths_of_a_second() -> None:
    assert [ticked(BEAT + late) - BEAT for late in (0, 99, 100, 199)] == [0, 0, 100, 100]


def _aggregation() -> AggregationSettings:
    config = {"type": "kafka", "name": "k"}
    places = {
        name: {"name": topic, "type": "destination", "topic": topic, "config": config}
        for name, topic in (("destination", "out"), ("error", "dead"))
    }
    step = {
        "name": "a",
        "type": "aggregation",
        "trigger": {"type": "count", "count": 1_000, "timeout": 1_000},
        **places,
    }
    return AggregationSettings.model_validate({"step": step})


def test_a_large_window_lies_in_chunks_beside_the_state_until_it_closes() -> None:
    spark = Spark()
    bucket = _bucket(spark, "chunks", _aggregation())
    sizes = []
    for number in range(300):
        record = Record("t", 0, number, BEAT, b"k", b'{"a": "%b"}' % (b"x" * 80), [])
        outcome, _ = bucket._outcome(0, _rows(record), BEAT, None)
        sizes.append(outcome.size)
        assert (outcome.keys, outcome.open) == (1, 1)
    assert spark.map
    assert max(sizes) < 20_000
    assert sum(len(data) for (data,) in spark.map.values()) > 10_000

    again = _bucket(spark, "chunks, after a restart", _aggregation())
    (moment,) = spark.timers
    outcome, _ = again._outcome(0, BucketRows(), moment, moment)
    made = Outcome.decode(outcome.encode()).outgoing
    assert [each.origin.offset for each in made] == list(range(300))
    assert outcome.open == 0
    assert not spark.map


def test_a_chunk_that_is_missing_is_named() -> None:
    spark = Spark()
    bucket = _bucket(spark, "missing", _aggregation())
    records = [Record("t", 0, n, BEAT, b"k", b'{"a": "%b"}' % (b"x" * 80), []) for n in range(300)]
    rows = BucketRows([list(column) for column in zip(*records, strict=True)])
    bucket._outcome(0, rows, BEAT, None)
    spark.map.clear()
    (moment,) = spark.timers
    with pytest.raises(StateDamaged, match="chunk 0 of window 1 is missing"):
        bucket._outcome(0, BucketRows(), moment, moment)
