"""The log of who did what outlives the console."""

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from dovecote.console.api import Parts, resolved
from dovecote.console.asked import ConsoleError, Named
from dovecote.console.deeds import DeedLog
from outbox.errors import BadSettings


def test_actions_are_there_after_a_restart_newest_first(tmp_path: Path) -> None:
    log = DeedLog(tmp_path / "state")
    log.add("ops", "drop", "outbox/shop x", "begun")
    log.add("ops", "drop", "outbox/shop x", "dropped")
    again = DeedLog(tmp_path / "state")
    assert [each["outcome"] for each in again.last(10)] == ["dropped", "begun"]
    assert [each["outcome"] for each in again.last(1)] == ["dropped"]


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    log = DeedLog(tmp_path)
    log.add("ops", "drop", "x", "dropped")
    with (tmp_path / "deeds.jsonl").open("a") as file:
        file.write('{"at": "2026')
    again = DeedLog(tmp_path)
    again.add("ops", "requeue", "y", "requeued")
    assert [each["action"] for each in DeedLog(tmp_path).last(10)] == ["requeue", "drop"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSettings, match=r"console\.state: the log cannot be kept"):
        DeedLog(tmp_path / "file")


@contextmanager
def full(bytes_: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes, as a disk that is full does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_within_a_line_takes_no_later_one_with_it(tmp_path: Path) -> None:
    log = DeedLog(tmp_path)
    log.add("ops", "drop", "x", "dropped")
    size = (tmp_path / "deeds.jsonl").stat().st_size
    with full(size + 20), pytest.raises(OSError, match="File too large"):
        log.add("ops", "drop", "lost", "dropped")
    log.add("ops", "requeue", "y", "requeued")
    assert [each["what"] for each in DeedLog(tmp_path).last(10)] == ["y", "x"]


class Full(list[str]):
    """A log with room for so many lines."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def add(self, _by: str, _action: str, what: str, outcome: str) -> None:
        if len(self) == self._room:
            raise OSError(28, "No space left on device")
        self.append(f"{what} {outcome}")


class Letters:
    """Every letter is dropped, unless something is wrong."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked, self._error = 0, error

    def resolve(self, _verb: str, named: list[Named], _by: str) -> Mapping[str, Any]:
        self.asked += 1
        if self._error is not None:
            raise self._error
        done = [{"part": each.part, "place": each.place, "what": "dropped"} for each in named]
        return {"done": done, "failed": []}


def parts(letters: Letters, log: Full) -> Parts:
    return Parts(cast("Any", None), cast("Any", letters), *cast("Any", (None, log, None)))


def test_nothing_is_done_without_a_log_and_what_is_done_is_answered_although_the_log_is_full() -> (
    None
):
    letters, named = Letters(), [Named("outbox/shop", "a"), Named("outbox/shop", "b")]
    with pytest.raises(ConsoleError, match="No space left on device") as refused:
        resolved(parts(letters, Full(0)), "ops", "drop", named)
    assert (refused.value.status, letters.asked) == (503, 0)
    told = resolved(parts(letters, Full(2)), "ops", "drop", named)
    assert [each["place"] for each in told["done"]] == ["a", "b"]
    assert "the log is incomplete" in told["note"]
    assert "note" not in resolved(parts(letters, Full(3)), "ops", "drop", named)


def test_the_log_has_the_end_of_an_action_that_failed_oddly() -> None:
    log = Full(9)
    with pytest.raises(OverflowError):
        resolved(parts(Letters(OverflowError("odd")), log), "ops", "drop", [Named("p", "a")])
    assert log == ["p a begun", "p a failed: odd"]
