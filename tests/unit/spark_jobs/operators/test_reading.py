"""Records as an operator reads them: their values are such as results in JSON can hold."""

from typing import Any

import pytest

from outbox.envelope import Record
from spark_jobs.operators.reading import many_reader, read_columns, reader
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


ODD = [
    Record("t", 0, 1, 7, None, b'{"v":1}', []),
    Record("t", 0, 2, -1, b"k", b'{"v":1}', []),
    Record("t", 0, 3, 2**60, b"k", b'{"v":1}', []),
    Record("t", 0, 4, 7, b"k", None, []),
    Record("t", 0, 5, 7, b"k", b'{"w":1}', []),
    Record("t", 0, 6, 7, b"k", b"[1]", []),
    Record("t", 0, 7, 7, b"k", b'"text"', []),
    Record("t", 0, 8, 7, b"k", b"1e999", []),
    Record("t", 0, 9, 7, b"k", b"", []),
]


@pytest.mark.parametrize("odd", [None, *ODD])
@pytest.mark.parametrize(
    "settings", [{"field": "v"}, {}, {"aggregate": "count"}, {"key": ["v"]}, {"event_time": "v"}]
)
def test_columns_of_records_are_read_as_each_record_is(
    odd: Record | None, settings: dict[str, Any]
) -> None:
    table = {"type": "sessions", "gap": "5s", "aggregate": "list"} | settings
    of = SessionsSettings.model_validate(table)
    plain = [Record("t", 0, n, 7 + n, b"k%d" % n, b'{"v":%d}' % n, []) for n in range(3)]
    records = [*plain, *([] if odd is None else [odd])]
    failed: list[Failed] = []
    columns = list(zip(*records, strict=True))
    found = list(read_columns(many_reader(of), columns, failed))
    wanted = [reader(of)(each, n) for n, each in enumerate(records)]
    assert found == [each for each in wanted if isinstance(each, Input)]
    assert failed == [each for each in wanted if isinstance(each, Failed)]
