"""Rows and records that wait for their counterparts keep no others from being compared."""

import pytest

from dovecote.audit import auditor, comparing, judging
from tests.support.audited_apart import Apart, described, id_of, partition, record, row


def test_rows_that_wait_do_not_keep_later_rows_from_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparing, "_MOST_AHEAD", 20)
    monkeypatch.setattr(comparing, "_MOST_ALONE", 50)
    apart = Apart(rows=[row(n) for n in range(30)])
    apart.read(5)
    for n in range(30, 130):
        apart.rows, apart.records = [*apart.rows, row(n)], [*apart.records, record(n)]
        apart.read()
    apart.read(3)
    matcher = apart.comparison.matcher
    assert (len(matcher.rows), matcher.topics[0].counts.matched) == (30, 100)


def test_many_records_of_others_are_judged_though_nothing_else_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparing, "_MOST_ALONE", 30)
    monkeypatch.setattr(comparing, "_RECORDS", 10)
    monkeypatch.setattr(judging, "_MOST", 1)
    monkeypatch.setattr(judging, "_ASK_EVERY", 10)
    monkeypatch.setattr(auditor, "_STILL_SECONDS", 1.0)
    apart = Apart(records=[record(n) for n in range(90)], topics=described(partition(end=90)))
    outcome = apart.auditor.once()
    assert (outcome.status, outcome.statement["troubles"]) == (0, [])
    assert outcome.statement["open"] == {"rows": 0, "records": 0}


def test_rows_of_a_topic_that_is_gone_do_not_keep_a_loss_from_being_found() -> None:
    apart = Apart(rows=[*(row(n, topic="gone") for n in range(600)), row(600)])
    apart.read(2)
    assert apart.judge() == ["lost"]
    assert list(apart.comparison.troubles) == ["topic/gone"]


def test_parked_events_do_not_keep_a_loss_from_being_found() -> None:
    apart = Apart(rows=[row(n) for n in range(1_200)])
    parked = [("orders", "/shop", id_of(n).bytes) for n in range(1_100)]
    apart.reader.parked = lambda after: ([] if after else parked, "now")
    apart.parked = 1_100
    outcome = apart.auditor.once()
    assert (outcome.status, outcome.findings) == (1, 100)


def test_a_topic_that_can_be_read_to_its_end_again_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "_STUCK", -1)
    apart = Apart(rows=[row(0)], topics=described(partition(end=2)))
    apart.read()
    assert apart.judge() == []
    assert list(apart.comparison.troubles) == ["end of topic/orders"]
    apart.records = [record(0)]
    apart.read()
    assert apart.judge() == []
    assert apart.comparison.troubles == {}


def test_events_that_wait_for_the_relay_are_a_trouble_until_it_has_them() -> None:
    apart = Apart(rows=[row(0)], is_passed=False)
    apart.read()
    for until in (apart.comparison.now(), -1):
        apart.auditor.judge.round(until)
        assert list(apart.comparison.troubles) == ["waiting outbox/shop"]
    apart.records = [record(0)]
    apart.read()
    assert apart.judge() == []
    assert apart.comparison.troubles == {}


def test_events_of_a_key_that_are_swapped_after_a_wait_are_found() -> None:
    apart = Apart(rows=[row(0)], is_passed=False)
    clock = iter(range(1_000_000))
    apart.comparison.now = lambda: next(clock)
    apart.read()
    between = next(clock)
    apart.rows = [row(1)]
    apart.read()
    apart.auditor.judge.round(between)
    apart.records = [record(1, offset=0), record(0, offset=1)]
    apart.read()
    assert apart.judge() == ["disordered"]
    assert apart.comparison.unlocked == 0
