"""How the figures of ours and of the peers are compared."""

from typing import Any

import pytest

from benchmarks.beside.figures import (
    FAILED,
    FAULT,
    MEASURED,
    MISSING,
    Figures,
    faults,
    is_failure,
    parsed,
    ratios,
)


def line(name: str, *, ours: bool = False, work: str = "push", **figures: Any) -> dict[str, Any]:
    usual = {"per_s": 100, "cpu_us": 10.0, "promise": "in order per key"}
    return {"bench": MEASURED, "work": work, "name": name, "ours": ours, **usual, **figures}


def test_ours_is_divided_by_each_peer_of_the_same_work() -> None:
    lines = [
        line("dovecote", ours=True, per_s=150, cpu_us=20.0),
        line("bento", per_s=300, cpu_us=10.0),
        line("other", per_s=100, cpu_us=40.0),
        line("flink", work="sessions"),
    ]
    found = [(each["peer"], each["rate"], each["cpu"]) for each in ratios(lines)]
    assert found == [("bento", 0.5, 2.0), ("other", 1.5, 0.5)]


def test_the_medians_of_the_turns_are_compared() -> None:
    lines = [
        *(line("dovecote", ours=True, per_s=rate) for rate in (10, 200, 1_000)),
        *(line("bento", per_s=rate) for rate in (90, 100, 5_000)),
    ]
    (found,) = ratios(lines)
    assert (found["rate"], found["rounds"]) == (2.0, 3)
    assert (found["ours_per_s"], found["peer_per_s"]) == (200, 100)


def test_each_of_ours_is_compared_with_each_peer() -> None:
    lines = [line("table", ours=True), line("wal", ours=True), line("once"), line("twice")]
    pairs = [(each["ours"], each["peer"]) for each in ratios(lines)]
    assert pairs == [("table", "once"), ("table", "twice"), ("wal", "once"), ("wal", "twice")]


def test_a_work_whose_peers_are_all_missing_has_no_ratio() -> None:
    missing = {"bench": MISSING, "work": "push", "name": "bento", "why": "there is no go"}
    assert list(ratios([line("dovecote", ours=True), missing])) == []
    assert not is_failure(missing)


def test_a_peer_that_took_no_measurable_time_has_no_ratio() -> None:
    (found,) = ratios([line("dovecote", ours=True), line("bento", cpu_us=0.0)])
    assert found["cpu"] is None


def test_faults_of_all_turns_are_told_together() -> None:
    lines = [line("bento", lost=1, repeated=2), line("bento", repeated=3), line("fine")]
    assert list(faults(lines)) == [
        {"work": "push", "name": "bento", "ours": False, "lost": 1, "repeated": 5}
    ]


def test_a_contender_that_promises_no_order_disorders_nothing() -> None:
    lines = [line("bento", disordered=7, promise="no order, at least once")]
    assert list(faults(lines)) == []


@pytest.mark.parametrize(
    ("told", "fails"),
    [
        ({"bench": FAULT, "ours": True, "lost": 1}, True),
        ({"bench": FAULT, "ours": True, "disordered": 1}, True),
        ({"bench": FAULT, "ours": True, "wrong": 1}, True),
        ({"bench": FAULT, "ours": True, "repeated": 1}, False),
        ({"bench": FAULT, "ours": False, "lost": 1}, False),
        ({"bench": FAILED, "name": "bento"}, True),
        (line("dovecote", ours=True), False),
    ],
)
def test_only_what_failed_and_a_promise_of_ours_that_is_broken_fail(
    told: dict[str, Any], *, fails: bool
) -> None:
    assert is_failure(told) == fails


def test_a_line_that_is_no_measurement_is_passed_over() -> None:
    assert parsed("Setting default log level\n") is None
    assert parsed("[1, 2]") is None
    assert parsed('{"name": "x"}') is None
    assert parsed('{"bench": "peers", "per_s": 1}') == {"bench": "peers", "per_s": 1}


def test_figures_that_are_not_known_are_left_out() -> None:
    assert Figures(per_s=10.4, cpu_us=1.234).fields() == {
        "per_s": 10,
        "cpu_us": 1.23,
        "lost": 0,
        "repeated": 0,
        "disordered": 0,
        "wrong": 0,
    }
