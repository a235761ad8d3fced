"""The log of who did what outlives the console."""

from pathlib import Path

import pytest

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
