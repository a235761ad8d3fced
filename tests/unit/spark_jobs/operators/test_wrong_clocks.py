"""A wall clock that was wrong for one batch is forgotten with the next one."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.settings import PairingSettings
from spark_jobs.operators.step import Input, Operator, Output, Skipped
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    DAILY,
    event,
    running,
    step,
    values,
)
from tests.unit.spark_jobs.operators.traces import ms, record, sessions

NOW = 1_760_000_000_000
HOUR = 3_600_000
WRONG = NOW + 3 * HOUR
MakeOperator = Callable[[str], Operator[Any]]


def _sessions(time: str) -> Operator[Any]:
    return sessions(stream_time=time, emit="final", close_after=ms(2_000), forget_after=ms(9_000))


def _pairing(emit: str) -> MakeOperator:
    def make(time: str) -> Operator[Any]:
        sides = {"a": {"topic": "t"}, "b": {"topic": "u"}}
        table = {"within": "1s", "close_after": "2s", "sides": sides, "emit": emit}
        return Pairing(PairingSettings.model_validate({**table, "stream_time": time}))

    return make


OPERATORS = pytest.mark.parametrize("make", [_sessions, _pairing("on_close"), _pairing("on_pair")])
TIMES = pytest.mark.parametrize("time", ["per_key", "per_partition", "global"])
RESTART = pytest.mark.parametrize("restart", [False, True])


class _Steps:
    def __init__(self, operator: Operator[Any], *, restart: bool) -> None:
        self._operator, self._restart = operator, restart
        self._state = operator.start()

    def at(
        self, now: int, *records: Input, behind: bool = False
    ) -> tuple[Sequence[Output], int | None]:
        state, outputs, deadline = self._operator.step(self._state, records, now, behind=behind)
        self._state = (
            decode(self._operator, encode(self._operator, state)) if self._restart else state
        )
        return outputs, deadline


@OPERATORS
@TIMES
@RESTART
@pytest.mark.parametrize("behind", [False, True])
def test_what_came_under_a_wrong_clock_closes_by_the_right_one(
    make: MakeOperator, time: str, *, restart: bool, behind: bool
) -> None:
    steps = _Steps(make(time), restart=restart)
    steps.at(NOW, record("old", NOW, 0))
    steps.at(WRONG, record("A", NOW, 1), behind=behind)

    outputs, deadline = steps.at(NOW + 1_000, record("B", NOW, 2))
    assert not [each for each in outputs if not isinstance(each, Skipped)]
    assert deadline is not None
    assert deadline <= NOW + 3_000
    outputs, _ = steps.at(NOW + 3_000)

    closed = {each.key for each in outputs}  # type: ignore[union-attr]  # results have one
    assert closed >= {b"A", b"B"}


@OPERATORS
@TIMES
@RESTART
def test_a_stream_time_that_only_a_wrong_clock_let_come_goes_back(
    make: MakeOperator, time: str, *, restart: bool
) -> None:
    steps = _Steps(make(time), restart=restart)
    steps.at(WRONG, record("A", WRONG, 1))
    steps.at(WRONG + 2_000)

    steps.at(NOW)
    outputs, _ = steps.at(NOW, record("A", NOW, 2), record("B", NOW, 3))
    assert list(outputs) == []
    outputs, _ = steps.at(NOW + 2_000)
    assert len(outputs) == 2


@pytest.mark.parametrize("early", [True, False])
def test_a_window_that_opened_under_a_wrong_clock_ends_by_the_right_one(
    tmp_path: Path, *, early: bool
) -> None:
    trigger = {**COUNT, "count": 9, "timeout": 2_000, "shouldFireAtProcessingTime": early}
    running_step = running(tmp_path, step(trigger=trigger))
    running_step.at(WRONG, event(n=1, time=NOW), behind=True)

    assert running_step.at(NOW) == []
    assert running_step.deadline == NOW + 2_000
    assert values(running_step.at(NOW + 2_000)) == [{"n": 1}]


def test_a_daily_window_that_opened_under_a_wrong_clock_fires_on_its_day(tmp_path: Path) -> None:
    day = datetime(2025, 10, 9, tzinfo=UTC)
    ten, eleven, two = (round(day.replace(hour=hour).timestamp() * 1000) for hour in (10, 11, 14))
    for trigger, scripts in (
        (DAILY, {}),
        (
            {"type": "timeFromEvent", "path": "time.star", "timePattern": "HH:mm:ss"},
            {"time": "def time(IN, Env):\n    return '11:05:00'\n"},
        ),
    ):
        running_step = running(tmp_path, step(trigger=trigger), **scripts)
        running_step.at(two, event(n=1, time=ten), behind=True)

        assert running_step.at(ten) == []
        assert running_step.deadline == eleven + 300_000
        assert values(running_step.at(eleven + 300_000)) == [{"n": 1}]
