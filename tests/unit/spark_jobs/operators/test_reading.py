"""Records as an operator reads them: their values are such as results in JSON can hold."""

from typing import Any

import pytest

from outbox.envelope import Record
from spark_jobs.operators.reading import reader
from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.operators.step import Failed, Input


def read(value: bytes, **settings: Any) -> Input | Failed:
    table = {"type": "sessions", "gap": "5s", "grace": "5s", "aggregate": "list"} | settings
    record = Record("t", 0, 0, 7, b"k", value, [])
    return reader(SessionsSettings.model_validate(table))(record, None)


@pytest.mark.parametrize(
    ("value", "path"),
    [(b"1e999", "the value"), (b'{"a":[1,-1e999]}', "a[1]"), (b"[1e400]", "[0]")],
)
def test_a_number_that_results_cannot_hold_is_an_error_of_its_record(
    value: bytes, path: str
) -> None:
    found = read(value)
    assert isinstance(found, Failed)
    assert found.reason.startswith(f"{path} is ")
    assert found.reason.endswith("inf, a number that JSON cannot hold")
    kept = read(value.replace(b"e", b"0"))
    assert isinstance(kept, Input)
    assert isinstance(read(value, aggregate="count"), Input)  # which looks at no value


@pytest.mark.parametrize(
    ("time", "found"), [(b"1.76e12", 1_760_000_000_000), (b"-2.0", -2), (b"null", 7)]
)
def test_a_whole_number_with_an_exponent_is_a_time(time: bytes, found: int) -> None:
    one = read(b'{"at":%b}' % time, event_time="at")
    assert isinstance(one, Input)
    assert one.time == found
    assert one.time.__class__ is int


@pytest.mark.parametrize("time", [b"1.5", b"1e300", b"1e999", b"true", b'"1"'])
def test_what_is_no_number_of_milliseconds_is_an_error(time: bytes) -> None:
    assert isinstance(read(b'{"at":%b}' % time, event_time="at", aggregate="count"), Failed)
