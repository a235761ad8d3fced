import os
from pathlib import Path

import pytest

from dovecote.demo import configs
from dovecote.demo.configs import Files
from dovecote.process.settings.loading import load
from relay.settings import RelaySettings
from spark_jobs.jobs.files import load_all
from tests.support.documents import ROOT, blocks

DSN = "host=127.0.0.1 port=15432 user=postgres password=s3cret dbname=postgres"
BOOTSTRAP = "127.0.0.1:19092"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return configs.write(tmp_path, dsn=DSN, bootstrap=BOOTSTRAP)


def test_the_relay_takes_its_file_and_the_password_from_the_environment(files: Files) -> None:
    environ = {**os.environ, "PGPASSWORD": "s3cret"}
    settings = load(RelaySettings, files.relay, prefix="DOVECOTE_RELAY", environ=environ)
    assert settings.name == "flight-ops"
    assert "s3cret" in settings.dsn
    assert "s3cret" not in files.relay.read_text()


def test_the_jobs_take_their_files_together(files: Files, tmp_path: Path) -> None:
    first, *others = load_all([files.dedup, files.trips, files.days], environ={})
    assert first.source.topics == (configs.FLIGHTS,)
    assert first.topics_written() == (
        configs.DEPARTURES,
        configs.ARRIVALS,
        configs.RETRY,
        configs.DEAD_LETTER,
    )
    assert first.spark.checkpoint == str(configs.checkpoint(tmp_path))
    # Pairing and sessions see only what has passed deduplication.
    assert {topic for job in others for topic in job.source.topics} == {
        configs.DEPARTURES,
        configs.ARRIVALS,
    }
    assert {topic for job in others for topic in job.topics_written()} == {
        configs.TRIPS,
        configs.DAYS,
        *configs.ASIDE,
    }


def test_the_document_shows_the_files_as_they_are_written(files: Files, tmp_path: Path) -> None:
    shown = {block.name: block.text for block in blocks(ROOT / "docs/demo.md", "toml")}
    assert shown == {
        file.name: file.read_text().replace(str(tmp_path), "/tmp/dovecote-demo")  # noqa: S108  # only shown
        for file in files
    }
