"""Batches that a job cannot read are named by offset, and stepped over whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dovecote.cli.spark.skip import skip
from dovecote.devstack.stack import Stack
from spark_jobs.errors import KafkaUnavailable
from spark_jobs.source import fetching
from spark_jobs.source.cluster import Cluster
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.fetching import fetch
from spark_jobs.source.held_back import Held, HeldBack
from spark_jobs.source.offsets import Range
from tests.support.consuming import event, open_transaction, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.unreadable import LIMITS, damage, produce_bomb
from tests.support.waiting import until

SETTINGS = """
[kafka]
"bootstrap.servers" = "{kafka}"

[source]
topics = ["{topic}"]

[source.options]
{options}

[operator]
type = "latest"

[output]
topic = "out"
retry_topic = "retry"
dead_letter_topic = "dead"

[spark]
query = "{topic}"
checkpoint = "/tmp/none"
"""

spark_skip = typer.Typer()
spark_skip.command()(skip)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    fetching.forget()


def _read(kafka: str, topic: str, *skipped: str, first: int = 0) -> list[int | None]:
    config = SourceConfig(
        kafka={"bootstrap.servers": kafka},
        options=LIMITS,
        group=f"dovecote.{topic}",
        topics=(topic,),
        skip=skipped,
    )
    (found,) = fetch([Range(topic, 0, first, 9)], config)
    return [each.offset() for each in found.messages]


def test_a_transaction_that_is_open_is_seen_until_it_ends(
    stack: Servers, topic: MakeTopic
) -> None:
    name, other, kafka = topic(), topic(), stack.kafka.bootstrap
    for each in (name, other):
        produce(kafka, event(each, "k", 0))
    said = [Held()]
    cluster = Cluster({"bootstrap.servers": kafka})
    held = HeldBack(cluster, [f"{name}*", other], after=0.5, found=said.append)
    with held.at_work():
        with open_transaction(kafka, name):
            until(lambda: said[-1].text, within=20, what="it is seen")
            assert said[-1].partitions == {(name, 0)}
            assert f"{name}/0 is held back at offset 1: a transaction" in said[-1].text
        until(lambda: not said[-1].text, within=20, what="its end is seen")


@pytest.mark.parametrize("way", ["checksum", "bomb"])
def test_what_a_job_cannot_read_is_named_and_stepped_over_by_a_note(
    embedded: Stack, topic: MakeTopic, tmp_path: Path, way: str
) -> None:
    kafka, name = embedded.kafka.bootstrap, topic()
    produce(kafka, *(event(name, "k", n) for n in range(3)), partition=0)
    if way == "bomb":
        produce_bomb(kafka, name, records=3)
    else:
        produce(kafka, *(event(name, "k", n) for n in range(3, 6)), partition=0)
    produce(kafka, *(event(name, "k", n) for n in range(6, 9)), partition=0)
    if way == "checksum":
        damage(embedded.kafka.directory / "data", name, 3)
    sound = [0, 1, 2, 6, 7, 8]
    with pytest.raises(KafkaUnavailable, match=f"dovecote spark skip {name}/0/3"):
        _read(kafka, name)
    for place in (3, 4, 5):  # the setting alone, with any record of the batch
        assert _read(kafka, name, f"{name}/0/{place}") == sound
    with pytest.raises(KafkaUnavailable, match=r"source\.skip"):
        _read(kafka, name, f"{name}/0/6")
    options = "\n".join(f'"{key}" = "{value}"' for key, value in LIMITS.items())
    file = tmp_path / "job.toml"
    file.write_text(SETTINGS.format(kafka=kafka, topic=name, options=options))
    arguments = ["--config", str(file), "--why", "agreed", "--by", "ann"]
    done = CliRunner().invoke(spark_skip, [f"{name}/0/3", *arguments])
    assert f"{name}/0: offsets 3 to 5 cannot be read" in done.output, done
    assert _read(kafka, name) == sound
    assert _read(kafka, name, first=4) == sound[3:]
