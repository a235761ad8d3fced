"""The end of a gap, a restore or a cut is no trouble: a statement says it once."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovecote.audit.kafka import Lost
from dovecote.audit.rules.logged import Place
from dovecote.process.states import State
from tests.support.audited_apart import Apart, described, partition


def away_for_long(apart: Apart) -> None:
    apart.comparison.outlooks[0].covered_wall -= 7_200_000


def restored(apart: Apart) -> None:
    table = SimpleNamespace(state="table", end=0, slot=None)
    log: Any = apart.comparison.logs[0]
    log.look = lambda: table
    apart.comparison.outlooks[0].identity = "another/1"
    apart.require_same(0)


def cut(apart: Apart) -> None:
    apart.comparison.topics.positions[0] = {0: 9}
    apart.comparison.topics.resets = [Lost(0, 0, 9)]
    apart.topics = described(partition(end=5))
    apart.comparison._look()


@pytest.mark.parametrize(
    ("happen", "says"),
    [
        (away_for_long, "rows may have come and gone"),
        (restored, "was put back to an earlier state"),
        (cut, "a broker that lacked records became its leader"),
    ],
)
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_over_is_said_by_one_statement_also_after_a_kill(
    happen: Callable[[Apart], None], says: str, tmp_path: Path, *, is_killed: bool
) -> None:
    apart = Apart(state=tmp_path / "audit.sqlite3")
    apart.read()
    happen(apart)
    apart.read()
    apart.auditor._commit()
    if is_killed:
        apart.store.close()
        apart = Apart(state=apart.state, topics=apart.topics)
    apart.auditor._step()
    health = apart.auditor.ready()
    assert (health.ok, health.state, says in health.reason) == (True, State.BEHIND, True)
    (trouble,) = apart.auditor.state()["troubles"]
    assert says in trouble
    assert apart.auditor.state()["troubles"] == []
    assert apart.auditor.ready().state is State.WORKING


def test_events_after_a_restore_are_passed_whatever_the_log_before_it_had(tmp_path: Path) -> None:
    apart = Apart(state=tmp_path / "audit.sqlite3")
    log: Any = apart.comparison.logs[0]
    outlook = apart.comparison.outlooks[0]
    outlook.place, outlook.marks = Place(at=9_000, events=5), [(5, 9_000)]
    log.look = lambda: SimpleNamespace(state="wal", end=100)
    log.prepare = lambda *_: None
    apart.require_same(0)
    outlook.marks.append((6, 50))
    log._note_passed(60, 0)
    assert (outlook.passed, outlook.marks) == (6, [])
