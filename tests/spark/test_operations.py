"""An operator's view of a running job."""

import json
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.cli.spark.state import show
from dovecote.devstack.places import free_port
from dovecote.process.settings.models import HttpSettings
from outbox.errors import BadSettings
from spark_jobs.checkpoint.pins import PINNED
from spark_jobs.errors import MarkerRefused, QueryFailed
from spark_jobs.jobs.check import check_job
from spark_jobs.operators import encoding
from spark_jobs.operators.encoding import BadState
from spark_jobs.policy import job as dedup
from spark_jobs.query.status import address, look
from spark_jobs.stateful.state import read
from tests.spark.fix_spark import MakeJob
from tests.spark.fix_stateful import START_SECONDS, T0, MakeStateful, Sent, Stateful
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient, until


def _status(job: Stateful) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["spark", "status", "--config", str(job.file()), "--json"])
    return done.exit_code, json.loads(done.stdout)


def _metrics(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patient(5)) as answer:
        return str(answer.read().decode())


def _committed(job: Stateful) -> dict[tuple[str, int], int]:
    """Return what ordinary Kafka tools see of the job's group."""
    admin = AdminClient({"bootstrap.servers": job.kafka})
    group = f"dovecote.{job.settings.spark.query}"
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {
        (each.topic, each.partition): each.offset
        for each in asked[group].result(patient(30)).topic_partitions
    }


def test_a_running_job_is_seen_by_prometheus_by_kafkas_tools_and_by_status(
    stateful: MakeStateful,
    topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clicks = topic(2)
    port = free_port()
    fields = {"gap": "5s", "grace": "1s", "close_after": "off", "max_lag": "off"}
    job = stateful("sessions", [clicks], **fields).with_(http={"port": port})
    # The last record of each key closes what came before.
    times = [(f"k{n}", at) for n in range(10) for at in (T0, T0 + 20_000)]
    job.send(*(Sent(clicks, key, at, 1, int(key[1]) % 2) for key, at in times))
    with job.running():
        until(lambda: job.rows() == 20, within=START_SECONDS, what="all is read")
        job.send(Sent(clicks, "k0", T0, 1, 0))
        until(lambda: job.rows() == 21, within=START_SECONDS, what="one that comes late as well")
        until(lambda: sum(_committed(job).values()) == 21, within=30, what="the group is told")

        # One look may get no answer in time, on a machine that is busy.
        found = until(
            lambda: [seen] if (told := _status(job))[0] == 0 and (seen := told[1]) else [],
            within=30,
            what="its status says that it works",
        )[0]
        label = f'query="{job.settings.spark.query}"'
        committed = f'dovecote_spark_offset_commits_total{{outcome="ok",{label}}}'
        shown = until(
            lambda: [text] if committed in (text := _metrics(port)) else [],
            within=30,
            what="the commit is counted",
        )[0].splitlines()

    expected = {"ready": True, "lag_rows": 0, "keys": 10, "open": 10}
    assert {name: found[name] for name in expected} == expected
    assert found["query"] == job.settings.spark.query
    assert 0 < found["largest_bucket"] < found["state_bytes"]
    assert found["rows_per_s"] > 0
    assert f'dovecote_spark_records_total{{{label},result="handled"}} 10.0' in shown
    assert f'dovecote_spark_records_skipped_total{{{label},reason="late"}} 1.0' in shown
    assert _committed(job) == {(clicks, 0): 11, (clicks, 1): 10}
    code, found = _status(job)
    assert code == 1
    assert "the job does not run" in found["reason"]
    # Its memory is read without it.
    buckets = list(read(job.spark, job.settings))
    assert sum(each.keys for each in buckets) == sum(each.open for each in buckets) == 10
    assert show(buckets, "k3", as_json=True) == 0
    (entry,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (session,) = entry["open"]
    assert (entry["key"], session["start"], session["value"]) == ("k3", T0 + 20_000, 1)
    assert session["closes_after"] == T0 + 26_000
    assert show(buckets, "nobody", as_json=False) == 1
    capsys.readouterr()
    assert show(buckets, None, as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["all", "10", "10"]
    # Other checkpoints have no state, or state that cannot be read.
    elsewhere = job.with_(spark={"checkpoint": str(tmp_path / "elsewhere")}).settings
    with pytest.raises(BadSettings, match="holds no state yet"):
        list(read(job.spark, elsewhere))
    shutil.copytree(job.settings.spark.checkpoint, elsewhere.spark.checkpoint)
    for schema in Path(job.settings.spark.checkpoint).glob("state/0/_stateSchema/default/0_*"):
        schema.rename(tmp_path / "away")
        with pytest.raises(QueryFailed, match="cannot be moved"):
            list(read(job.spark, elsewhere))
        (tmp_path / "away").rename(schema)
    monkeypatch.setattr(encoding, "FORMAT", 9)
    with pytest.raises(BadState, match=r"has format 2; .* begin with a new checkpoint"):
        list(read(job.spark, job.settings))


def test_a_checkpoint_goes_on_with_what_it_was_made_with(
    stateful: MakeStateful, topic: MakeTopic
) -> None:
    clicks, more = topic(2), topic(1)
    job = stateful("sessions", [clicks], gap="5s", close_after="off", max_lag="off")
    # The second record closes what the first began, so that something is written.
    job.send(*(Sent(clicks, "a", at, 1) for at in (T0, T0 + 9_000)), Sent(more, "b", T0, 1))
    job.run_until(lambda: job.rows() == 2, "one topic is read")
    query = job.settings.spark.query
    two_topics = job.with_(source={"topics": [clicks, more]})
    # None of these gets as far as a batch.
    for other, reason in (
        (job.with_(state={"buckets": 4}), r"made with state\.buckets = 3, not 4: set it back"),
        (
            job.with_(spark={"shuffle_partitions": 3}),
            r"made with spark\.shuffle_partitions = 2, not 3: set it back",
        ),
        (job.with_(spark={"query": "other"}), f"of the query {query}, not of other: .*--adopt"),
        (two_topics, r"about the topics .*: set `source\.topics` back, or run once with --adopt"),
        (
            job.with_(operator={"stream_time": "per_partition"}),
            r"made with operator\.stream_time = per_key, not per_partition",
        ),
        (job.with_(operator={"key": ["user"]}), r"made with operator\.key = record, not user"),
        (_delay(job), r"is that of `dovecote spark sessions`, not of `dovecote spark delay`"),
    ):
        with pytest.raises(BadSettings, match=reason):
            other.run_until(lambda: False, "it is refused")
        findings = dict(check_job(other.settings, "-", lambda: None))
        assert re.search(reason, findings["checkpoint"] or "")
    new = job.with_(spark={"checkpoint": f"{job.settings.spark.checkpoint}-new"})
    with pytest.raises(MarkerRefused, match=r"the checkpoint is new.*--adopt"):
        new.run_until(lambda: False, "it is refused")

    # A new topic is read from its beginning.
    two_topics.run_until(lambda: job.rows() == 3, "both are read", adopt=True)

    assert sum(each.open for each in read(job.spark, job.settings)) == 2


def test_a_checkpoint_that_somebody_else_made_is_refused(job: MakeJob) -> None:
    made = job()
    made.send(("a", b"{}", []))
    made.run()
    pinned = made.checkpoint / PINNED
    before = pinned.read_text()
    pinned.unlink()

    with pytest.raises(BadSettings, match=r"not Dovecote's, or a part of one: .*--adopt"):
        made.run()

    assert made.run(adopt=True) == []
    assert pinned.read_text() == before


def test_a_job_that_has_nothing_to_do_is_ready(job: MakeJob, spark: SparkSession) -> None:
    port = free_port()
    plain = job().with_(spark={"trigger": "100ms"}).settings
    settings = plain.model_copy(update={"http": HttpSettings(port=port)})
    stop = threading.Event()
    name = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(name, "200")
    running = threading.Thread(
        target=dedup.run,
        args=(settings, spark),
        kwargs={"show": lambda _: None, "stop": stop},
    )
    running.start()
    try:
        until(
            lambda: look(settings.spark.query, address(settings)).ready,
            within=START_SECONDS,
            what="it is ready",
        )
    finally:
        stop.set()
        running.join(patient(START_SECONDS))
        spark.conf.unset(name)


def _delay(job: Stateful) -> Stateful:
    """Return a job of another kind on the same checkpoint."""
    tables = {**job.tables, "operator": {"type": "delay"}}
    return replace(job, name="delay", tables=tables)
