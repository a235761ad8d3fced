"""Where a reader of a topic begins."""

from datetime import UTC, datetime, timedelta

import pytest

from dovecote.observe.rules.start import Start, first_offsets, start_of
from outbox.errors import BadSettings

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
ENDS = {0: (0, 10), 1: (7, 9), 2: (5, 5)}


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start(edge="beginning")),
        ("end", Start(edge="end")),
        ("-3", Start(last=3)),
        ("15m ago", Start(at=NOW - timedelta(minutes=15))),
        ("2026-02-01", Start(at=datetime(2026, 2, 1, tzinfo=UTC))),
        ("2026-02-01T09:30+01:00", Start(at=datetime(2026, 2, 1, 8, 30, tzinfo=UTC))),
    ],
)
def test_a_start_is_an_edge_a_number_or_a_time(text: str, start: Start) -> None:
    assert start_of(text, now=NOW) == start


@pytest.mark.parametrize(
    "text", ["", "3", "-", "-x", "yesterday", "15 ago", "x ago", "99999999h ago"]
)
def test_another_text_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadSettings, match="is no start: write beginning, end, -20"):
        start_of(text, now=NOW)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Start(edge="beginning"), {0: 0, 1: 7, 2: 5}),
        (Start(edge="end"), {0: 10, 1: 9, 2: 5}),
        (Start(last=3), {0: 7, 1: 7, 2: 5}),
        (Start(at=NOW), {0: 4, 1: 7, 2: 5}),
    ],
)
def test_no_partition_is_begun_outside_of_what_is_kept(
    start: Start, first: dict[int, int]
) -> None:
    """A time that a topic has passed has an offset; another one means its end."""
    assert first_offsets(start, ENDS, {0: 4, 1: 2, 2: -1}) == first
