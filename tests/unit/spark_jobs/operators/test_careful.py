"""A record for which an operator raises is one dead letter, and the others are taken."""

from collections.abc import Sequence
from typing import Any

import pytest

from spark_jobs.operators.careful import careful
from spark_jobs.operators.encoding import encode
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.operators.step import Failed, Input, Session, StepResult
from tests.unit.spark_jobs.operators.traces import ms, record

BAD = "bad"


class Fragile(Sessions):
    """Raises in the middle of a step, with its state half changed, as no operator should."""

    def step(
        self, state: Any, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[Any]:
        for number, each in enumerate(records):
            if each.value == BAD:
                super().step(state, records[:number], now, behind=behind)
                msg = "a record that nobody has thought of"
                raise RuntimeError(msg)
        return super().step(state, records, now, behind=behind)


def _fragile() -> Fragile:
    return Fragile(SessionsSettings(gap=ms(10), aggregate="list"))


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.operators import encoding

    for table in ("_NAMES", "_CONTENTS", "_RENEWALS"):
        found = getattr(encoding, table)
        monkeypatch.setattr(encoding, table, {**found, Fragile: found[Sessions]})


@pytest.mark.parametrize("bad", [[0], [3], [0, 1, 6], range(7)])
def test_all_but_the_record_that_fails_are_taken(bad: Sequence[int]) -> None:
    operator = _fragile()
    before = encode(operator, operator.step(operator.start(), [record("k", 1, "old")], 1).state)
    records = [record("k", n + 2, BAD if n in bad else n, offset=n) for n in range(7)]

    found = careful(operator, before, records, 5, behind=False, cause=RuntimeError())
    state, outputs, _ = operator.step(found.state, [], 1_000)

    failed = [each for each in found.outputs if isinstance(each, Failed)]
    assert sorted(each.record.offset for each in failed) == [*bad]
    assert {each.reason for each in failed} == {
        "RuntimeError: a record that nobody has thought of"
    }
    (result,) = [each for each in outputs if isinstance(each, Session)]
    assert result.value == ["old", *(n for n in range(7) if n not in bad)]
    assert state is not None


def test_a_failure_that_no_record_causes_stays_one() -> None:
    class Broken(Fragile):
        def step(self, *_: Any, **__: Any) -> StepResult[Any]:
            raise OSError

    cause = ValueError("the first")
    with pytest.raises(ValueError, match="the first"):
        careful(Broken(SessionsSettings(gap=ms(1))), None, [], 1, behind=False, cause=cause)
