"""Whether a query restarts again and again, from the runs that its checkpoint has."""

import pytest

from spark_jobs.checkpoint.restarts import (
    STEADY_SECONDS,
    WITHIN_SECONDS,
    Ran,
    Restarts,
    begun,
    decode,
    encode,
    ended,
    restarts,
)

NOW = 1_000_000.0


def _failed(*ago: float) -> list[Ran]:
    return [Ran(began=NOW - each - 5, ended=NOW - each, error="no handler") for each in ago]


def test_three_failed_runs_are_a_trouble_and_two_are_none() -> None:
    runs = [*_failed(90, 60, 30), Ran(began=NOW - 10)]

    found = restarts(runs, NOW, running=True)

    assert found == Restarts(3, NOW - 90, "no handler")
    assert found.text(NOW) == (
        "restarts again and again: 3 runs failed within 90 s, the last one because no handler"
    )
    assert not restarts(runs[1:], NOW, running=True).text(NOW)


def test_a_run_that_ended_without_a_word_was_killed_before_the_next_one_began() -> None:
    runs = [Ran(began=NOW - each) for each in (40, 30, 20, 10)]

    assert restarts(runs, NOW, running=True) == Restarts(
        3, NOW - 30, "it was killed, or its machine went away"
    )
    assert restarts(runs, NOW, running=False).failed == 3


def test_runs_that_were_stopped_do_not_count() -> None:
    stopped = [Ran(began=NOW - each, ended=NOW - each + 5) for each in (90, 60, 30)]
    assert restarts(stopped, NOW, running=False) == Restarts()


def test_a_query_without_runs_has_none_that_failed() -> None:
    assert restarts([], NOW, running=True) == restarts([], NOW, running=False) == Restarts()


def test_old_failures_do_not_count() -> None:
    runs = _failed(WITHIN_SECONDS + 1, 60, 30)
    assert restarts(runs, NOW, running=False).failed == 2


def test_a_run_that_goes_on_ends_the_trouble() -> None:
    before = _failed(1_000, 900, 800)
    young = [*before, Ran(began=NOW - STEADY_SECONDS + 1)]
    steady = [*before, Ran(began=NOW - STEADY_SECONDS)]
    assert restarts(young, NOW, running=True).failed == 3
    assert restarts(steady, NOW, running=True) == Restarts()
    # It has ended meanwhile: what is there was not well.
    assert restarts(steady, NOW, running=False).failed == 3


def test_the_file_is_bounded_and_read_as_it_was_written() -> None:
    runs: tuple[Ran, ...] = ()
    for number in range(50):
        runs = ended(begun(runs, NOW + number), NOW + number + 0.5, "x" * 1_000)

    assert len(runs) == 20
    assert runs[-1] == Ran(began=NOW + 49, ended=NOW + 49.5, error="x" * 300)
    assert decode(encode(runs)) == runs
    assert len(encode(runs)) < 10_000


def test_a_clock_that_was_set_back_makes_no_run_end_before_it_began() -> None:
    (run,) = ended(begun((), NOW), NOW - 60)
    assert run.ended == NOW


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"runs": 1}', '{"runs": [1]}', '{"runs": [{"began": "x"}]}']
)
def test_a_file_that_is_cut_or_not_ours_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)
