"""Rows and records that wait for their counterparts keep no others from being compared."""

import pytest

from dovecote.audit import auditor, comparing, judging
from tests.support.audited_apart import Apart, described, partition, record, row


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
