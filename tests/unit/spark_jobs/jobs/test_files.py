"""Files of several jobs."""

import logging
from pathlib import Path

import pytest

from outbox.errors import BadSettings
from spark_jobs.jobs.files import all_jobs, load_all
from spark_jobs.jobs.together_stream import main

_BASE = """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
"""
_DEDUP = f"""{_BASE}
[source]
topics = ["in"]
[operator]
type = "exact"
[output]
topic = "out"
retry_topic = "retry"
dead_letter_topic = "dead"
[recirculation]
run = "together"
[spark]
query = "one"
checkpoint = "/c/one"
"""
_SESSIONS = f"""{_BASE}
[source]
topics = ["out"]
[operator]
type = "sessions"
gap = "5s"
[output]
topic = "sessions"
dead_letter_topic = "sessions.dead"
[spark]
query = "QUERY"
checkpoint = "/c/two"
"""


def _files(folder: Path, *texts: str) -> list[Path]:
    for number, text in enumerate(texts):
        (folder / f"{number}.toml").write_text(text)
    return [folder / f"{number}.toml" for number in range(len(texts))]


def test_each_file_is_read_as_its_type_says_and_recirculation_comes_along(tmp_path: Path) -> None:
    jobs = load_all(_files(tmp_path, _DEDUP, _SESSIONS.replace("QUERY", "two")), environ={})

    assert [type(job).__name__ for job in jobs] == ["DedupSettings", "SessionsJob"]
    assert [job.spark.query for job in all_jobs(jobs)] == ["one", "one.delay", "two"]


@pytest.mark.parametrize(
    ("name", "said"), [("one", "spark.query"), ("one.delay", "'one.delay' in several jobs")]
)
def test_a_name_belongs_to_one_job(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(BadSettings, match=said):
        load_all(_files(tmp_path, _DEDUP, _SESSIONS.replace("QUERY", name)), environ={})


def test_bad_files_for_spark_submit_have_an_exit_status_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [logging.getLogger(), logging.getLogger("py4j")]
    for logger in names:
        monkeypatch.setattr(logger, "level", logger.level)
    files = [str(file) for file in _files(tmp_path, _DEDUP, _SESSIONS.replace("QUERY", "one"))]

    assert main([*files, "--json"]) == 2
    assert "each needs its own" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"nobody\.toml"):
        load_all([tmp_path / "nobody.toml"], environ={})
