"""An operator's outputs become records: keys, values, headers, and counts."""

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from dedup.retries.copies import left
from outbox.envelope import ERROR, ID, ORIGIN, TYPE, WITHOUT_VALUE, Record
from spark_jobs.operators.lines import result
from spark_jobs.operators.settings import DelaySettings, PairingSettings, SessionsSettings
from spark_jobs.operators.step import (
    Ahead,
    Closed,
    Failed,
    Input,
    Late,
    Output,
    Paired,
    Released,
    Session,
    Skipped,
)
from spark_jobs.rows.packets import BucketRows
from spark_jobs.sink.markers import Counts
from spark_jobs.sink.outgoing import Outgoing
from spark_jobs.stateful.outcome import OperatorTopics, Outcome, Reporter, unwritable

TOPICS = OperatorTopics(output="out", late="late", dead_letter="dead")
PAIRING = PairingSettings.model_validate(
    {"within": "1m", "key": ["a", "b"], "sides": {"x": {"topic": "tx"}, "y": {"topic": "ty"}}}
)
SESSIONS = SessionsSettings.model_validate({"gap": "1s"})
RECORD = Record("t", 1, 7, 99, b"k", b'{"v": 1}', [("h", b"x")])
INPUT = Input(b"k", 99, None, "t", 1, 7, RECORD.value, 0)


def _told(settings: Any, *outputs: Output, topics: OperatorTopics = TOPICS) -> Outcome:
    outcome = Outcome(bucket=1, rows=5)
    rows = BucketRows([[each] for each in RECORD._replace(headers=())])
    Reporter(settings, topics, "q").report(outputs, outcome, rows, 1_000)
    return Outcome.decode(outcome.encode())


def test_a_call_is_a_record_with_the_key_of_its_fields() -> None:
    output = Paired(b'["u","v"]', 50, {"x": 1, "y": None}, {"tx": 4})
    (record,) = _told(PAIRING, output).outgoing
    assert (record.topic, record.key, record.timestamp) == ("out", b'["u","v"]', 50)
    assert json.loads(record.value or b"") == {"a": "u", "b": "v", "ts": 50, "x": 1, "y": None}
    headers = dict(record.headers)
    assert headers[TYPE] == b"dovecote.pairing"
    assert _told(PAIRING, output).outgoing[0] == record
    (other,) = _told(PAIRING, output._replace(sides={"tx": 5})).outgoing
    assert dict(other.headers)[ID] != headers[ID]


def test_every_call_of_a_key_says_its_own() -> None:
    keys = (b'["u\\"","v"]', b'["u",1]', b'["u\\"","v"]')
    said = [Paired(key, n, {"x": [n], "y": "é"}, {"tx": n}) for n, key in enumerate(keys)]
    found = [json.loads(each.value or b"") for each in _told(PAIRING, *said).outgoing]
    assert found == [result(each, PAIRING) for each in said]
    settings = PAIRING.model_copy(update={"key": "record"})
    (record,) = _told(settings, said[0]._replace(key=b"\xff")).outgoing
    assert json.loads(record.value or b"") == {"key": "\ufffd", "ts": 0, "x": [0], "y": "é"}


def test_a_worker_takes_no_more_memory_for_more_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.stateful.outcome._MOST_HEADS", 100)
    reporter = Reporter(PAIRING, TOPICS, "q")
    rows = BucketRows([[each] for each in RECORD._replace(headers=())])

    def step(first: int) -> None:
        keys = (b'["u%d","v"]' % number for number in range(first, first + 1_000))
        calls = [Paired(key, 50, {"x": 1}, {"tx": 4}) for key in keys]
        reporter.report(calls, Outcome(bucket=1, rows=5), rows, 1_000)

    tracemalloc.start()
    try:
        step(0)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, 6):
            step(number * 1_000)
        # The parser of JSON keeps some thousand short strings of its own.
        assert tracemalloc.get_traced_memory()[0] - before < 500_000
    finally:
        tracemalloc.stop()


def test_a_session_is_a_record_at_its_end() -> None:
    (record,) = _told(SESSIONS, Session("update", b"k", 1, 9, [2**70], 3)).outgoing
    assert (record.topic, record.key, record.timestamp) == ("out", b"k", 9)
    assert json.loads(record.value or b"") == {
        "kind": "update",
        "key": "k",
        "start": 1,
        "end": 9,
        "value": [2**70],
        "revision": 3,
    }


def test_a_record_that_was_held_goes_out_as_it_came() -> None:
    (record,) = _told(DelaySettings(), Released(RECORD)).outgoing
    assert record[:5] == ("out", b"k", RECORD.value, [("h", b"x")], 0)


@pytest.mark.parametrize(
    ("origin", "topic"),
    [
        ("orders.eu/0/7", "orders.eu"),
        ("returns/0/7", "returns"),
        ("orders.old/0/7", "out"),  # taken out
        ("orders.eu.retry/0/7", "out"),  # the job reads it
        ("__orders/0/7", "out"),
        ("dovecote.markers.x/0/7", "out"),
        ("orders.*/0/7", "out"),
        ("!orders.old/0/7", "out"),
        ("", "out"),
        (None, "out"),
    ],
)
def test_a_record_that_was_held_goes_back_where_a_pattern_lets_it(
    origin: str | None, topic: str
) -> None:
    topics = replace(
        TOPICS,
        back_to=frozenset({"returns", "orders.*", "*s", "!orders.old"}),
        read=frozenset({"*.retry"}),
    )
    headers = [] if origin is None else [(ORIGIN, origin.encode())]
    released = Released(RECORD._replace(headers=headers))

    (record,) = _told(DelaySettings(), released, topics=topics).outgoing

    assert record.topic == topic


def test_what_is_late_or_wrong_says_why_and_everything_is_counted() -> None:
    outputs = (
        Late(INPUT, "its session is closed", 5),
        Failed(INPUT, "no number"),
        Skipped(None, "t", 0, 1, "no key"),
        Skipped(b"k", "t", 0, 1, "duplicate of 4"),
        Session("result", b"k", 1, 9, 1, 1),
    )
    found = _told(SESSIONS, *outputs)
    late, dead, _ = found.outgoing
    assert (late.topic, late.value, dict(late.headers)[ERROR]) == (
        "late",
        RECORD.value,
        b"its session is closed",
    )
    assert (dead.topic, dict(dead.headers)[ORIGIN]) == ("dead", b"t/1/7")
    skipped = {"duplicate": 1, "late": 1, "no": 1}
    assert found.counts() == Counts(rows=5, handled=1, skipped=skipped, dead=1)
    counted = _told(
        SESSIONS, *outputs, topics=OperatorTopics(output="o", late=None, dead_letter="d")
    )
    assert counted.counts() == found.counts()
    assert [each.topic for each in counted.outgoing] == ["d", "o"]


def test_a_result_that_its_topic_refuses_is_buried_with_its_value_if_that_can_be_written() -> None:
    (result,) = _told(SESSIONS, Session("result", b"k", 1, 9, 1, 1)).outgoing

    whole = unwritable("dead", 1_000, result, "too large")
    dead = unwritable("dead", 1_000, whole, "too large")

    assert (whole.topic, whole.key, whole.value) == ("dead", b"k", result.value)
    assert dict(whole.headers)[ERROR] == b"out refuses it: too large"
    assert dict(whole.headers)[ID] == dict(result.headers)[ID]
    assert ORIGIN not in dict(whole.headers)
    assert (dead.topic, dead.key, dead.value) == ("dead", b"k", None)


def test_what_is_ahead_of_the_clock_is_late_or_without_such_a_topic_dead() -> None:
    ahead = Ahead(INPUT, "its time is wrong")

    found = _told(SESSIONS, ahead)
    counted = _told(SESSIONS, ahead, topics=OperatorTopics(output="o", late=None, dead_letter="d"))

    assert found.counts() == Counts(rows=5, skipped={"ahead": 1})
    assert counted.counts() == Counts(rows=5, dead=1)
    for (record,), topic in ((found.outgoing, "late"), (counted.outgoing, "d")):
        assert (record.topic, record.value) == (topic, RECORD.value)
        assert dict(record.headers)[ERROR] == b"its time is wrong"


def test_a_record_that_no_topic_takes_is_buried_without_its_value() -> None:
    origin = RECORD._replace(value=None, headers=[])
    record = Outgoing("out", b"k", b"x" * 99, [], 0, origin)
    dead = unwritable("dead", 1_000, record, "too large")
    assert (dead.topic, dead.key, dead.value) == ("dead", b"k", b"x" * 99)
    assert dict(dead.headers)[ERROR] == b"out refuses it: too large"

    for partition, place in ((1, ("t", 1, 7)), (-1, None)):
        result = dead._replace(origin=origin._replace(partition=partition))
        emptied = unwritable("dead", 1_000, result, "too large again")
        assert (emptied.topic, emptied.key, emptied.value) == ("dead", b"k", None)
        headers = dict(emptied.headers)
        told = b"without its value, as dead refuses it: too large again; before that: "
        assert headers[ERROR] == told + b"out refuses it: too large"
        assert headers[WITHOUT_VALUE] == left(place, b"x" * 99).encode()


SOME = Closed([b"a", b"b"], [1, 2], [-3, 9], [[1], [2, 3]], [1, 2])


def test_sessions_by_columns_are_told_as_each_alone() -> None:
    alone = _told(SESSIONS, *SOME.sessions())
    together, with_others = _told(SESSIONS, SOME), _told(SESSIONS, SOME, Failed(INPUT, "no"))
    assert together.told == alone.told
    assert (together.handled, list(together.outgoing)) == (2, list(alone.outgoing))
    assert list(with_others.outgoing)[:2] == list(alone.outgoing)
    assert (with_others.handled, with_others.dead) == (2, 1)
