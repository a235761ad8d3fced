"""
A job without state that is killed at any moment writes each event once, wherever its key lies.

Driver, JVM, Python workers and the broker are killed at random. Producers have different
partitioners, and partitions are added, so that keys lie where they do not belong. `auto` goes
both ways; `DOVECOTE_KILLS_OF_SPARK=100` makes it long, and tries each way alone with half as many
kills.
"""

import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from dedup.rules.identity import identity
from dovecote.devstack import Stack
from outbox.envelope import ID
from tests.crash.spark_storm import PATIENCE, Storm, storm
from tests.spark.fix_spark import as_record
from tests.support.fix_stack import MakeTopic, new_topics
from tests.support.waiting import consume, patient, until

_LONG = os.environ.get("DOVECOTE_KILLS_OF_SPARK")
KILLS = int(_LONG or "4")

JOB = """
[kafka]
"bootstrap.servers" = "{kafka}"
[source]
topics = ["{source}"]
max_offsets_per_trigger = 400
[output]
topic = "{output}"
retry_topic = "{retry}"
dead_letter_topic = "{dead}"
[state]
buckets = 2
[spark]
query = "lanes-{grouping}"
checkpoint = "{folder}/lanes"
shuffle_partitions = 2
trigger = "200ms"
grouping = "{grouping}"
[operator]
type = "exact"
[recirculation]
run = "together"
trigger = "300ms"
"""


def _send(stack: Stack, topic: str, numbers: list[int], partitioner: str) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap, "partitioner": partitioner})
    for number in numbers:
        headers: list[tuple[str, str | bytes | None]] = [(ID, b"%d" % number)]
        producer.produce(topic, b"{}", b"key-%d" % (number % 97), headers=headers)
    assert producer.flush(patient(60)) == 0


def _ids(stack: Stack, topic: str) -> Counter[str]:
    found = consume(stack.kafka.bootstrap, topic, within=60)
    return Counter(identity(as_record(message)).id for message in found)


def _grow(stack: Stack, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(patient(60))


def _kill(jobs: Storm, what: str, pause: threading.Event) -> None:
    until(jobs.is_up, within=PATIENCE, what="a batch since the last kill")
    pause.wait(jobs.dice.uniform(0, 1.0))
    jobs.kill(what)


@pytest.mark.timeout(max(900, 60 * KILLS))
@pytest.mark.parametrize("grouping", ["auto", *(["partitions", "shuffle"] if _LONG else [])])
def test_each_event_is_written_once_wherever_its_key_lies(
    module_stack: Stack, tmp_path: Path, grouping: str
) -> None:
    dice, pause = random.Random(f"{KILLS}-{grouping}"), threading.Event()
    kills = KILLS if grouping == "auto" else -(-KILLS // 2)
    kinds = ["worker", "driver", "broker", "jvm"]
    plan = [*kinds, *dice.choices(kinds, [4, 1, 3, 1], k=kills)][:kills]
    with new_topics(module_stack) as make:
        source, output, retry, dead = _topics(make)
        file = tmp_path / "job.toml"
        file.write_text(
            JOB.format(
                kafka=module_stack.kafka.bootstrap,
                folder=tmp_path,
                source=source,
                output=output,
                retry=retry,
                dead=dead,
                grouping=grouping,
            )
        )
        share = 1_200 if grouping == "auto" else 200  # it goes over after 1,000
        partitions = 2
        with storm(module_stack, tmp_path, ["dedup", "--config", str(file)], dice) as jobs:
            for number, what in enumerate([*plan, None]):
                partitioner = "consistent" if number % 3 == 1 else "murmur2"
                numbers = list(range(number * share, (number + 1) * share))
                _send(module_stack, source, numbers, partitioner)
                if what is None:
                    break
                if number % 2:
                    # With a number that the lanes do not divide, every way is a shuffle.
                    partitions += 1 if grouping == "auto" else 2
                    _grow(module_stack, source, partitions)
                _kill(jobs, what, pause)
            sent = Counter(str(number) for number in range((kills + 1) * share))

            def done() -> bool:
                jobs.is_up()
                pause.wait(1)
                return len(_ids(module_stack, output)) >= len(sent)

            until(done, within=PATIENCE, what="all events are written")

        assert _ids(module_stack, output) == sent
        assert not _ids(module_stack, dead)
        moved = _ids(module_stack, retry)
        assert bool(moved) == (grouping == "partitions") or grouping == "auto"
        main = _ids(module_stack, source)
        assert main == sent + moved  # each record that went to the retry topic came back, once
        assert sum(jobs.killed.values()) == kills
        print(f"{grouping}: {dict(jobs.killed)}, {jobs.starts} starts, {moved.total()} moved")  # noqa: T201  # for the long one


def _topics(make: MakeTopic) -> tuple[str, str, str, str]:
    return make(2), make(2), make(), make()
