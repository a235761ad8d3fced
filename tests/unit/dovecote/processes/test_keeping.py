"""A process that ends is started again, and the parent says of all what is true of the worst."""

import signal

import pytest

from dovecote.process.health import HealthReport
from dovecote.process.states import State
from dovecote.processes.rules.keeping import (
    FRESH,
    QUIET,
    SETTLED,
    Member,
    asked_first,
    ended,
    fault,
    gives_up,
    heard,
    is_due,
    silence,
    started,
    told,
    whole,
)

WELL = HealthReport(ok=True, role="member", reason="progressing", state=State.WORKING)
BEHIND = HealthReport(ok=True, role="member", reason="late by 400 s", state=State.BEHIND)
STALLED = HealthReport(ok=False, role="member", reason="no record completed", state=State.STALLED)


def ends_again_and_again(times: int, *, after: float) -> list[float]:
    member, now, pauses = Member(0, 0.0, served=True), 0.0, []
    for _ in range(times):
        now += after
        member = ended(member, "ended", now)
        pauses.append(member.since - now)
        now = member.since
        member = started(member, now)
    return pauses


def test_the_pause_doubles_to_half_a_minute_while_a_process_ends_again_and_again() -> None:
    assert ends_again_and_again(8, after=0.1) == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30])


def test_after_a_minute_of_work_an_end_counts_as_the_first() -> None:
    assert ends_again_and_again(5, after=SETTLED) == pytest.approx([1] * 5)


def test_a_process_is_started_again_when_its_pause_is_over() -> None:
    lost = ended(Member(1, 0.0, served=True), "was ended", 10.0)
    assert not is_due(lost, 10.9)
    assert is_due(lost, 11.0)
    back = started(lost, 11.0)
    assert back.runs
    assert back.restarts == 1
    assert not back.served
    assert not is_due(back, 1e9)


def test_only_an_end_before_the_first_work_ends_them_all() -> None:
    assert gives_up(Member(0, 0.0))
    assert not gives_up(Member(0, 0.0, served=True))
    back = started(ended(Member(0, 0.0, served=True), "ended", 1.0), 2.0)
    assert not gives_up(back), "it has worked once: what it needs may come back"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, "ended with status 0"),
        (2, "ended with status 2"),
        (-signal.SIGKILL, "was ended by SIGKILL"),
        (-63, "was ended by signal 63"),
    ],
)
def test_an_end_is_told_in_words(status: int, said: str) -> None:
    assert told(status) == said


def test_all_are_ready_if_each_is() -> None:
    members = [Member(0, 0.0, served=True), Member(1, 0.0, served=True)]
    found = whole(members, [(5.0, WELL), (5.0, WELL)], 6.0, ending=False)
    assert found == HealthReport(
        ok=True, role="member", reason="2 processes: progressing", state=State.WORKING
    )


def test_the_worst_process_is_named() -> None:
    members = [Member(number, 0.0, served=True) for number in range(3)]
    reports = [(5.0, WELL), (5.0, BEHIND), (5.0, STALLED)]
    found = whole(members, reports, 6.0, ending=False)
    assert (found.ok, found.state) == (False, State.STALLED)
    assert found.reason == "process 1: late by 400 s; process 2: no record completed"
    later = whole(members[:2], reports[:2], 6.0, ending=False)
    assert (later.ok, later.state) == (True, State.BEHIND)


def test_an_old_answer_does_not_count() -> None:
    """Green means that it worked within the last minute."""
    member = Member(0, 0.0, served=True)
    assert heard(member, (5.0, WELL), 5.0 + FRESH) == WELL
    assert heard(member, (5.0, WELL), 5.1 + FRESH) is None
    found = whole([member], [(5.0, WELL)], 65.0, ending=False)
    assert (found.ok, found.state) == (False, State.STALLED)
    assert found.reason == "process 0: it runs, and has not answered for 60 s: see its log"


def test_an_answer_from_before_the_restart_does_not_count() -> None:
    member = started(ended(Member(0, 0.0, served=True), "ended with status 1", 10.0), 11.0)
    found = whole([member], [(9.9, WELL)], 12.0, ending=False)
    assert (found.ok, found.state) == (False, State.STARTING)
    assert found.reason == "process 0: it starts; before, it ended with status 1"


def test_a_process_that_waits_for_its_restart_is_failing() -> None:
    lost = ended(Member(0, 0.0, served=True), told(-signal.SIGSEGV), 10.0)
    found = whole([lost, Member(1, 0.0)], [(9.9, WELL), (9.9, WELL)], 10.0, ending=False)
    assert (found.ok, found.state) == (False, State.FAILING)
    assert found.reason == "process 0: it was ended by SIGSEGV, and is started again in 1 s"


def test_a_parent_that_ends_is_draining_and_not_ready() -> None:
    found = whole([Member(0, 0.0)], [(1.0, WELL)], 1.0, ending=True)
    assert (found.ok, found.state) == (False, State.DRAINING)


@pytest.mark.parametrize("served", [False, True])
def test_an_end_that_was_wanted_is_well_with_status_0_alone(served: bool) -> None:  # noqa: FBT001  # a parameter
    member = Member(1, 0.0, served=served)
    assert not fault(member, 0)
    assert fault(member, 3) == "process 1 ended with status 3 when it was told to end"
    assert "SIGKILL" in fault(member, -signal.SIGKILL)


def test_the_signal_itself_may_end_what_has_not_begun() -> None:
    assert not fault(Member(1, 0.0), -signal.SIGTERM)
    assert "SIGTERM" in fault(Member(1, 0.0, served=True), -signal.SIGTERM)


def test_a_parent_that_was_stopped_takes_its_own_silence_for_nobodys() -> None:
    silent = 0.0
    for passed in (0.2, 0.2, 3600.0, 0.2):
        silent = silence(silent, passed)
    assert silent == pytest.approx(1.6)


def test_requests_go_to_the_first_process_that_is_well_and_to_a_silent_one_last() -> None:
    def order(*known: tuple[float, HealthReport | None]) -> list[int]:
        numbers = range(len(known))
        return sorted(numbers, key=lambda number: asked_first(number, *known[number]))

    assert order((0.0, WELL), (0.0, WELL)) == [0, 1]
    assert order((0.0, WELL), (0.0, BEHIND)) == [0, 1]
    assert order((0.0, STALLED), (0.0, BEHIND)) == [1, 0]
    assert order((0.0, None), (0.0, WELL)) == [1, 0]
    assert order((QUIET, WELL), (0.0, STALLED), (0.0, WELL)) == [2, 1, 0]
