"""A job's status, seen from outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.cli.spark.status import table
from dovecote.process.http.state import serve
from dovecote.process.states import State
from outbox.errors import BadSettings
from spark_jobs.query.metrics import Metrics
from spark_jobs.query.progress import Summary, line
from spark_jobs.query.status import Status, address, look
from spark_jobs.query.watching import Health
from spark_jobs.sink.markers import Counts
from spark_jobs.stateful.settings import SessionsJob

PROGRESS = {
    "batchId": 7,
    "durationMs": {"triggerExecution": 500},
    "sources": [{"endOffset": {"t": {"0": 1, "1": 1}}, "latestOffset": {"t": {"0": 3, "1": 6}}}],
}
FILE = """
kafka = { "bootstrap.servers" = "127.0.0.1:1" }
source = { topics = ["t"] }
operator = { type = "sessions", gap = "5s" }
output = { topic = "out", dead_letter_topic = "dead" }
spark = { query = "clicks", checkpoint = "-" }
"""


@pytest.fixture
def served() -> Iterator[tuple[Metrics, Health, str]]:
    metrics, health = Metrics("clicks"), Health(stall_after=60)
    with serve("127.0.0.1", 0, health, metrics.registry) as port:
        yield metrics, health, f"http://127.0.0.1:{port}"


def test_a_job_is_shown_by_its_own_numbers(served: tuple[Metrics, Health, str]) -> None:
    metrics, health, url = served
    counts = Counts(rows=30, handled=10)
    done = Summary(counts=counts, replayed=0, newest=1_000)
    metrics.batch(line("clicks", PROGRESS, done, now=3_500), counts)
    metrics.lag({("t", 0): 2, ("t", 1): 5})
    metrics.state(keys=9, opened=4, size=1234, largest=800)
    health.progressed()

    assert look("clicks", url) == Status(
        query="clicks",
        ready=True,
        reason="progressing",
        state=State.IDLE,
        batches=1,
        rows_per_s=30.0,
        lag_rows=7,
        lag_seconds=2.5,
        batch_seconds=0.5,
        keys=9,
        open=4,
        state_bytes=1234,
        largest_bucket=800,
    )
    health.stopped()
    assert look("clicks", url).reason == "stopped"


def test_another_job_at_the_place_is_told(served: tuple[Metrics, Health, str]) -> None:
    found = look("calls", served[2])

    assert not found.ready
    assert "is not this job" in found.reason


def test_where_nothing_runs_that_is_what_is_said(tmp_path: Path) -> None:
    with serve("127.0.0.1", 0, Health(stall_after=1), Metrics("x").registry) as port:
        pass
    file = tmp_path / "clicks.toml"
    file.write_text(f"{FILE}http = {{ port = {port} }}\n")

    done = CliRunner().invoke(app, ["spark", "status", "--config", str(file)])

    assert done.exit_code == 1
    assert f"nothing answers at http://127.0.0.1:{port}" in done.stdout
    assert "does not run" in done.stdout


@pytest.mark.parametrize("port", [None, 0])
def test_a_job_that_serves_nothing_cannot_be_looked_at(port: int | None, tmp_path: Path) -> None:
    (tmp_path / "clicks.toml").write_text(FILE)
    settings = SessionsJob.model_validate(
        {
            "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            "source": {"topics": ["t"]},
            "operator": {"type": "sessions", "gap": "5s"},
            "output": {"topic": "out", "dead_letter_topic": "dead"},
            "spark": {"query": "clicks", "checkpoint": "-"},
            "http": {"port": port},
        }
    )

    with pytest.raises(BadSettings, match=r"set `http\.port`"):
        address(settings)


def test_a_file_of_no_job_is_told_what_there_is(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("operator = { type = 'none' }\n")

    done = CliRunner().invoke(app, ["spark", "status", "--config", str(file)])

    assert isinstance(done.exception, BadSettings)
    assert "does not match any of the expected tags" in str(done.exception)


def test_several_jobs_make_a_table() -> None:
    running = Status(
        query="clicks",
        ready=True,
        reason="progressing",
        state=State.WORKING,
        batches=3,
        rows_per_s=1234.0,
        lag_rows=5,
        lag_seconds=0.5,
        batch_seconds=0.25,
        keys=9,
        open=4,
        state_bytes=12_345,
    )
    gone = Status(query="calls", ready=False, reason="nothing answers")

    assert table([running, gone]).splitlines() == [
        "QUERY   IS       ROWS/S  LAG            BATCH   OPEN  KEYS  STATE     SAYS",
        "clicks  working  1,234   5 rows, 0.5 s  0.25 s  4     9     12,345 B  progressing",
        "calls   unknown  -       -              -       -     -     -         nothing answers",
    ]
