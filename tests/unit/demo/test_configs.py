import os
from pathlib import Path

import pytest

from demo import configs
from demo.configs import Files
from outbox.settings import load
from relay.settings import RelaySettings
from spark_jobs.settings import DedupSettings
from tests.documents import ROOT, blocks

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


def test_the_job_takes_its_file(files: Files, tmp_path: Path) -> None:
    settings = load(DedupSettings, files.dedup, prefix="DOVECOTE_SPARK", environ={})
    assert settings.source.topics == (configs.FLIGHTS,)
    assert settings.topics_written() == (configs.DEPARTURES, configs.RETRY, configs.DEAD_LETTER)
    assert settings.marker_topic() == configs.MARKERS
    assert settings.spark.checkpoint == str(configs.checkpoint(tmp_path))


def test_the_document_shows_the_files_as_they_are_written(files: Files, tmp_path: Path) -> None:
    shown = {block.name: block.text for block in blocks(ROOT / "docs/demo.md", "toml")}
    assert shown == {
        file.name: file.read_text().replace(str(tmp_path), "/tmp/dovecote-demo")  # noqa: S108  # only shown
        for file in files
    }
