"""The history of a part is bounded in points and in lines."""

from typing import Any

from dovecote.console.history import MOST_SERIES, POINTS, History


def _node(id_: str, rate: float) -> Any:
    return {"id": id_, "rate": rate, "lag": {"events": 3, "seconds": None}}


def test_a_line_has_at_most_600_points_and_the_last_ones() -> None:
    history = History(3_600)
    for second in range(0, 7_200, 2):
        history.add(10_000 + second, [_node("a", second)])
    for minutes in (5, 30, 60, 600):
        rate, lag = history.lines("a", minutes, 17_198)
        assert (rate["name"], lag["name"]) == ("rate", "lag_events")
        assert 0 < len(rate["points"]) <= POINTS
        assert rate["points"][-1][1] == 7_198


def test_a_time_without_samples_is_a_gap() -> None:
    history = History(3_600)
    history.add(10_000, [_node("a", 1)])
    history.add(10_600, [_node("a", 2)])
    (rate, _) = history.lines("a", 30, 10_600)
    assert [value for _, value in rate["points"]] == [1, 2]


def test_lines_go_on_after_the_clock_was_set_back() -> None:
    history = History(3_600)
    for at in (9_990, 10_000, 10_020, 900_000, 10_010):
        history.add(at, [_node("a", at)])
    rate, _ = history.lines("a", 30, 10_010)
    assert rate["points"] == [(10_008.0, 10_010.0)]
    history.add(10_020, [_node("a", 1)])
    history.add(9_999, [_node("a", 2)])
    rate, _ = history.lines("a", 30, 10_010)
    assert [value for _, value in rate["points"]] == [2]


def test_the_number_of_lines_is_bounded_and_parts_that_are_gone_make_room() -> None:
    history = History(3_600)
    half = MOST_SERIES // 2
    history.add(1_000.0, [_node(f"a{n}", 1) for n in range(half + 500)])
    assert len(history) == MOST_SERIES
    history.add(1_010.0, [_node("b", 1)])
    assert len(history) == 2
