"""Which timestamps a topic takes, and what becomes of the others."""

import pytest

from outbox.envelope import TIME, Record
from spark_jobs.sink.outgoing import Outgoing
from spark_jobs.sink.times import NOTHING, Bounds, fitted

NOW = 1_760_000_000_000
HOUR = 3_600_000
ORIGIN = Record("in", 0, 5, NOW, b"k", b"v", [])


def _record(time: int, topic: str = "out", *headers: tuple[str, bytes | None]) -> Outgoing:
    return Outgoing(topic, b"k", b"v", [*headers], time, ORIGIN)


@pytest.mark.parametrize(
    ("time", "taken"),
    [
        (NOW, True),
        (NOW + HOUR, True),
        (NOW + HOUR + 1, False),
        (NOW - 2 * HOUR, True),
        (NOW - 2 * HOUR - 1, False),
        (0, True),  # the time of writing
    ],
)
def test_a_time_within_the_bounds_of_its_topic_stays(time: int, *, taken: bool) -> None:
    record = _record(time)
    ((found,), restamped) = fitted([record], {"out": Bounds(2 * HOUR, HOUR)}, NOW)
    assert (found is record, restamped) == (taken, 0 if taken else 1)
    assert found.timestamp == (time if taken else 0)


def test_its_own_time_is_kept_in_a_header_that_is_there_or_is_made() -> None:
    records = [
        _record(NOW + 1),
        _record(NOW + 1, "out", (TIME, b"theirs")),
        _record((NOW + 1) * 1_000_000),  # in nanoseconds
        _record(NOW + 1, "other"),
    ]
    found, restamped = fitted(records, {"out": NOTHING}, NOW)
    assert restamped == 3
    assert [dict(each.headers).get(TIME) for each in found] == [
        b"2025-10-09T08:53:20.001000Z",
        b"theirs",
        b"2025-10-09T08:53:20.001000Z",
        None,
    ]
    assert [each.timestamp for each in found] == [0, 0, 0, NOW + 1]
