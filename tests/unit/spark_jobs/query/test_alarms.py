"""The driver's knowledge of the alarms of a stateful job's buckets."""

from spark_jobs.query.batch import KnownAlarms
from spark_jobs.rows.buckets import NONE


def test_anything_may_be_due_until_all_alarms_are_known() -> None:
    alarms = KnownAlarms()
    alarms.report({"1": NONE})

    assert alarms.is_due(0)

    alarms.complete({})
    assert not alarms.is_due(10**15)


def test_a_bucket_is_due_from_its_alarm_on() -> None:
    alarms = KnownAlarms()
    alarms.complete({"1": NONE, "2": 500})

    assert [alarms.is_due(now) for now in (499, 500, 501)] == [False, True, True]

    alarms.report({"2": 900})
    assert [alarms.is_due(now) for now in (501, 900)] == [False, True]


def test_what_a_bucket_told_since_the_start_is_newer_than_what_is_stored() -> None:
    alarms = KnownAlarms()
    alarms.report({"1": 900, "2": NONE})
    alarms.complete({"1": 500, "2": 500, "3": 700})

    assert [alarms.is_due(now) for now in (699, 700)] == [False, True]

    alarms.report({"3": NONE})
    assert [alarms.is_due(now) for now in (899, 900)] == [False, True]
