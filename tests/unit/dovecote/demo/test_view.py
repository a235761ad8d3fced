import io

import pytest
from rich.console import Console

from dovecote.demo import run, view
from dovecote.demo.check.verdict import Line
from dovecote.demo.view import Snapshot, Stage, show_table, shown


def snapshot(committed: int, published: int) -> Snapshot:
    return Snapshot(
        stages=(Stage("committed", committed, 10), Stage("published", published, 10)),
        outcomes=(("departures", 2),),
        kills=1,
    )


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_there_is_a_plain_line_now_and_then() -> None:
    out = console(terminal=False)
    with shown(out) as seen:
        seen.happened("the relay was killed")
        seen.update(snapshot(0, 0))
        seen.update(snapshot(7, 5))
        seen.update(snapshot(8, 6))
    first, second = text(out).splitlines()
    assert first.endswith("the relay was killed")
    assert "committed 7 (" in second
    assert second.endswith("departures 2, kills 1")
    assert "\x1b" not in text(out)


def test_on_a_terminal_one_sees_what_happened_how_far_it_is_and_the_lag() -> None:
    out = console(terminal=True)
    with shown(out) as seen:
        seen.happened("the relay was killed")
        seen.update(snapshot(7, 5))
    assert "the relay was killed" in text(out)
    assert "kills of the relay 1" in text(out)
    (published,) = {line for line in text(out).splitlines()[-4:] if "published" in line}
    assert published.split()[-1].startswith("2")


def test_a_number_that_is_not_what_it_has_to_be_stands_out() -> None:
    out = console(terminal=False)
    show_table(
        out, [Line("lost", 1, "= 0", is_right=False), Line("kills", 2, "= 2", is_right=True)]
    )
    lines = [line.split() for line in text(out).splitlines() if line]
    assert lines[1:] == [["lost", "1", "=", "0", "WRONG"], ["kills", "2", "=", "2", "ok"]]


class Standing:
    """A pipeline in which nothing moves."""

    def require_health(self) -> None:
        """Everything else is well."""

    def snapshot(self) -> Snapshot:
        return snapshot(7, 5)

    def unfinished(self) -> str:
        return "the relay: 2 of 7 rows are not published"


def test_a_pipeline_in_which_nothing_moves_is_stuck_and_says_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_STUCK_SECONDS", 0.05)
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0.01)
    with (
        view.shown(console(terminal=False)) as seen,
        pytest.raises(run.Stuck, match="waiting for the relay: 2 of 7 rows are not published"),
    ):
        run._drive_until(Standing(), seen, lambda _: False, pause=0.01)  # type: ignore[arg-type]  # all of a pipeline that it looks at
