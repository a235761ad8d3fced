"""The secrets of a job stay with its clients: nothing that Spark shows or keeps has them."""

import os
import subprocess
from pathlib import Path

import pytest

from dovecote.devstack.kafka.java import java
from tests.spark.fix_spark import MakeJob
from tests.support.relaying import COMMAND
from tests.support.waiting import patient

SECRET = "tops3cret-of-a-job"  # noqa: S105  # of this test


@pytest.mark.slow
@pytest.mark.parametrize("operator", [{}, {"remember": "1h"}], ids=["lanes", "state"])
def test_neither_the_event_log_nor_a_checkpoint_nor_the_output_has_a_secret(
    bare_job: MakeJob, tmp_path: Path, operator: dict[str, object]
) -> None:
    """Spark's page is made of what the event log says."""
    events, local = tmp_path / "events", tmp_path / "local"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.local.dir": str(local),
    }
    job = bare_job(**operator).with_(spark={"conf": conf})
    job.send(("k", b"{}", [("ce_id", b"e1")]))
    file = job.file()
    text = file.read_text()
    text = text.replace("PT1H", "1h")
    text = text.replace("[kafka]", '[kafka]\n"sasl.password" = { env = "JOB_PASSWORD" }')
    key = '"spark.hadoop.fs.s3a.secret.key" = { env = "JOB_PASSWORD" }'
    file.write_text(text.replace('"conf" = {', f'"conf" = {{{key}, '))
    done = subprocess.run(
        [COMMAND, "spark", "dedup", "--config", str(file)],
        env={**os.environ, **java().environment(), "JOB_PASSWORD": SECRET},
        capture_output=True,
        check=False,
        timeout=patient(120),
    )
    assert done.returncode == 0, done.stderr.decode()
    assert len(job.output()) == 1
    kept = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert any(each.is_relative_to(events) and each.stat().st_size > 10_000 for each in kept)
    assert any(each.is_relative_to(job.checkpoint) for each in kept)
    said = {str(each): each.read_bytes() for each in kept}
    said |= {"stdout": done.stdout, "stderr": done.stderr}
    assert [where for where, text in said.items() if SECRET.encode() in text] == []
