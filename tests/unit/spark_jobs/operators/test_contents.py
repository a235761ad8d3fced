"""The readable form of a state."""

from typing import Any

from outbox.envelope import ID, ROUND, Record
from spark_jobs.operators.contents import entries
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.reading import reader
from spark_jobs.operators.settings import DelaySettings, PairingSettings, SessionsSettings
from spark_jobs.operators.step import Input
from spark_jobs.operators.table import operator


def _held(settings: Any, records: list[Record], now: int, *, behind: bool = False) -> list[Any]:
    used, read = operator(settings), reader(settings)
    inputs: list[Any] = [read(record, n) for n, record in enumerate(records)]
    state = used.step(used.start(), inputs, now, behind=behind).state
    return list(entries(state, settings))


def test_a_session_is_shown_with_both_clocks_that_may_close_it() -> None:
    settings = SessionsSettings.model_validate(
        {"gap": "5s", "grace": "1s", "close_after": "1m", "aggregate": "sum"}
    )
    records = [Record("t", 0, n, 1_000 * n, b"ann", b"%d" % n, []) for n in (1, 3)]

    assert _held(settings, records, 50_000) == [
        {
            "key": "ann",
            "stream_time": 3_000,
            "open": [
                {
                    "start": 1_000,
                    "end": 3_000,
                    "value": 4,
                    "revision": 2,
                    "closes_after": 9_000,
                    "closes_at": 110_000,
                }
            ],
            "forgotten_at": None,
        }
    ]


def test_what_the_wall_clock_never_closes_has_no_moment_and_a_shared_clock_is_shown() -> None:
    settings = SessionsSettings.model_validate(
        {"gap": "5s", "close_after": "off", "stream_time": "per_partition"}
    )
    records = [Record("t", 3, n, 9_000 * n, b"k%d" % n, b"1", []) for n in (0, 1)]

    (opened,) = _held(settings, records, 0)

    assert (opened["partition"], opened["stream_time"]) == (3, 9_000)
    assert opened["open"][0]["closes_at"] is None


def test_a_call_is_shown_with_its_events_and_what_is_remembered() -> None:
    settings = PairingSettings.model_validate(
        {
            "key": ["a", "b"],
            "within": "10s",
            "grace": "5s",
            "sides": {"one": {"topic": "t1", "field": "x"}, "two": {"topic": "t2", "field": "y"}},
        }
    )
    value = b'{"a": "ann", "b": "bob", "x": 7, "y": 8}'
    records = [
        Record("t1", 0, 4, 1_000, None, value, []),
        Record("t2", 1, 5, 20_000, None, value, []),
    ]

    (found,) = _held(settings, records, 0)

    assert found["key"] == ["ann", "bob"]
    assert (found["remembered"], found["stream_time"]) == (1, 20_000)
    assert found["open"] == [
        {
            "sides": {"t2": [{"time": 20_000, "partition": 1, "offset": 5, "field": 8}]},
            "start": 20_000,
            "end": 20_000,
            "closes_after": 35_000,
            "closes_at": 15_000,
        }
    ]


def test_records_that_wait_are_shown_in_the_order_in_which_they_are_due() -> None:
    headers = [(ID, b"e1"), (ROUND, b"2")]
    delay = Delay(DelaySettings())
    inputs = [
        Input(b"k", due, Record("retry", 0, n, 0, b"k", b"v", headers), "retry", 0, n)
        for n, due in enumerate((9, 5))
    ]

    later, first = reversed(
        list(entries(delay.step(delay.start(), inputs, 0).state, DelaySettings()))
    )

    assert (first["due"], later["due"]) == (5, 9)
    assert first == {
        "key": "k",
        "topic": "retry",
        "partition": 0,
        "offset": 1,
        "id": "e1",
        "round": 2,
        "due": 5,
    }
