"""The information in a checkpoint on this machine."""

from pathlib import Path

from spark_jobs.checkpoint.files import LocalFiles
from spark_jobs.jobs import check
from spark_jobs.jobs.check import next_batch, query_id


def _checkpoint(folder: Path, planned: int, done: int) -> LocalFiles:
    for log, count in (("offsets", planned), ("commits", done)):
        (folder / log).mkdir()
        for number in range(count):
            (folder / log / str(number)).touch()
            (folder / log / f".{number}.crc").touch()
    (folder / "metadata").write_text('{"id":"abc"}')
    return LocalFiles(folder)


def test_a_new_checkpoint_begins_with_batch_0(tmp_path: Path) -> None:
    assert next_batch(LocalFiles(tmp_path / "nowhere")) == 0
    assert query_id(LocalFiles(tmp_path / "nowhere")) is None


def test_a_batch_that_was_planned_and_not_done_comes_again(tmp_path: Path) -> None:
    assert next_batch(_checkpoint(tmp_path, planned=3, done=2)) == 2


def test_after_a_batch_that_is_done_comes_the_next(tmp_path: Path) -> None:
    assert next_batch(_checkpoint(tmp_path, planned=3, done=3)) == 3
    assert query_id(LocalFiles(tmp_path)) == "abc"


def test_a_checkpoint_that_this_user_may_not_read_is_a_finding() -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/job/dovecote.json")

    found = check._looked("checkpoint", denied, None, None)  # type: ignore[arg-type]  # not looked at
    assert found.what == "checkpoint"
    assert "/data/job/dovecote.json: Permission denied" in (found.problem or "")
