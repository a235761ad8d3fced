"""A checkpoint on a disk, after its job was killed at a bad moment."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.checkpoint.files import SparkFiles
from spark_jobs.checkpoint.pinned import pin
from spark_jobs.checkpoint.pins import PINNED
from spark_jobs.checkpoint.restarts import RUNS
from spark_jobs.checkpoint.runs import noted
from spark_jobs.errors import CheckpointUnavailable
from spark_jobs.jobs.check import Checkpoints, _checkpoint
from spark_jobs.query.settings import DedupSettings
from spark_jobs.source.offsets import Offsets


def _checksum(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _run(spark: SparkSession, folder: Path) -> int:
    """Run a job that does nothing; return how many runs are known."""
    with noted(spark, str(folder)) as runs:
        return len(runs.known)


def _pinned(spark: SparkSession, folder: Path) -> Offsets:
    return pin(spark, str(folder), {"job": "dedup"}, begin=lambda: Offsets({"t": {0: 5}}))


def test_a_job_that_was_killed_while_it_noted_its_run_is_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert _run(spark, tmp_path) == 1
    checksum = _checksum(tmp_path / RUNS)
    # The file is replaced first, and then its checksum.
    shutil.copy(checksum, tmp_path / "older")
    assert _run(spark, tmp_path) == 2
    shutil.copy(tmp_path / "older", checksum)

    assert _run(spark, tmp_path) == 3
    (tmp_path / RUNS).write_text('{"runs": [')
    assert _run(spark, tmp_path) == 1


def test_settings_that_are_cut_are_said_although_they_have_a_checksum(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert _pinned(spark, tmp_path) == Offsets({"t": {0: 5}})
    (tmp_path / PINNED).write_text('{"job": "ded')

    with pytest.raises(BadSettings, match=r"dovecote\.json is cut: remove it .* --adopt"):
        _pinned(spark, tmp_path)


def test_a_write_that_fails_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / RUNS).mkdir()
    (tmp_path / RUNS / "in the way").touch()

    with pytest.raises(CheckpointUnavailable):
        SparkFiles(spark, str(tmp_path)).write(RUNS, b"{}")

    assert [each.name for each in tmp_path.iterdir()] == [RUNS]


@pytest.mark.parametrize("name", ["file:orders", "file://elsewhere/orders"])
def test_a_name_that_hadoop_does_not_take_is_a_bad_setting(spark: SparkSession, name: str) -> None:
    with pytest.raises(BadSettings, match=f"{name} cannot be used: correct its name"):
        SparkFiles(spark, name).read(PINNED)


def test_a_folder_is_looked_into_however_its_name_begins(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = f"file:{tmp_path}"
    SparkFiles(spark, name).write(PINNED, b'{"job": "sessions"}')
    settings = DedupSettings.model_validate(
        {
            "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            "source": {"topics": ["t"]},
            "operator": {"type": "first_match"},
            "output": {"topic": "o", "retry_topic": "r", "dead_letter_topic": "d"},
            "spark": {"query": "q", "checkpoint": name},
        }
    )

    with Checkpoints() as checkpoints, pytest.raises(BadSettings, match=r"is that of .*sessions"):
        _checkpoint(settings, checkpoints)
