"""A record that the client cannot read is said, holds its partition alone, and is stepped over."""

import json
import sys
import time
from pathlib import Path
from subprocess import run as call

import pytest

from dedup import Dead
from dedup.kafka.dead_topic import DeadTopic
from dedup.retries.letter import Which
from dedup.rules.unread import SkipNote
from dedup.unread.notes import keep
from dovecote.devstack.stack import Stack
from outbox.errors import DovecoteError
from tests.support.consuming import (
    Consuming,
    committed,
    consuming,
    event,
    open_transaction,
    produce,
)
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.unreadable import LIMITS, damage, produce_bomb
from tests.support.waiting import patient, until

FILE = """
topics = ["{topic}"]
group = "{topic}"

[kafka]
"bootstrap.servers" = "{kafka}"
"""


def skip(folder: Path, place: str, *more: str) -> tuple[int, str]:
    dovecote = str(Path(sys.executable).with_name("dovecote"))
    command = [dovecote, "consume", "skip", place, "-c", "c.toml", "--why", "a test", *more]
    done = call(
        command, cwd=folder, capture_output=True, text=True, timeout=patient(60), check=False
    )
    return done.returncode, done.stdout + done.stderr


def configured(folder: Path, kafka: str, topic: str, **properties: str) -> None:
    more = "".join(f'"{name}" = "{value}"\n' for name, value in properties.items())
    (folder / "c.toml").write_text(FILE.format(topic=topic, kafka=kafka) + more)


def until_committed(kafka: str, topic: str, offset: int) -> None:
    until(lambda: committed(kafka, topic)[0] == offset, within=20, what=f"{offset} committed")


def until_said(run: Consuming, trouble: str) -> None:
    until(lambda: trouble in reason(run).partition("but ")[2], within=20, what=trouble)


def until_counted(run: Consuming, value: float, name: str, **labels: str) -> None:
    until(lambda: run.count(name, **labels) == value, within=20, what=f"{name} is {value}")


def test_a_batch_that_unpacks_to_too_much_holds_its_partition_and_is_stepped_over_by_name(
    stack: Servers, topic: MakeTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name, kafka = topic(2), stack.kafka.bootstrap
    configured(tmp_path, kafka, name, **LIMITS)
    produce(kafka, *(event(name, "k", n) for n in range(3)), partition=0)
    produce_bomb(kafka, name, records=3)
    produce(kafka, *(event(name, "k", n) for n in range(3, 5)), partition=0)
    with consuming(kafka, name, kafka=LIMITS) as run:
        until_said(run, f"{name}/0 does not go on at offset 3: Decompression")
        until(
            lambda: "does not go on at offset 3" in caplog.text, within=20, what="it is in the log"
        )
        until_counted(run, 1, "stuck", topic=name, partition="0")
        produce(kafka, event(name, "other", 0), partition=1)
        run.has_handled(4)
        until(
            lambda: committed(kafka, name)[0] == 3, within=20, what="what came before is committed"
        )
        status, said = skip(tmp_path, f"{name}/0/2")
        assert (status, f"{name}/0/2 can be read" in said) == (1, True), said
        status, said = skip(tmp_path, "other/0/2")
        assert (status, "does not read topic" in said) == (2, True), said
        status, said = skip(tmp_path, f"{name}/0/4", "--by", "ann", "--json")
        assert status == 0, said
        note = json.loads(said)
        assert (note["first"], note["until"], note["by"], note["why"]) == (3, 6, "ann", "a test")
        run.has_handled(6)
        assert run.of_key("k") == [f"k-{n}" for n in range(5)]
        until(lambda: not run.consumer.health.lacking, within=20, what="no trouble")
        until_committed(kafka, name, 8)
        until_counted(run, 3, "stepped_over_total", topic=name)
        until_counted(run, 0, "stuck", topic=name)
        assert '"ann" decided' in caplog.text
    # A note is of one group alone.
    with consuming(kafka, name, kafka=LIMITS, group=f"{name}-other") as run:
        until_said(run, f"{name}/0 does not go on at offset 3")
        run.has_handled(3)
        assert run.of_key("k") == [f"k-{n}" for n in range(3)]


def test_a_partition_that_does_not_go_on_is_said_once_with_its_reason(
    stack: Servers, topic: MakeTopic
) -> None:
    broken, open_, kafka = topic(), topic(), stack.kafka.bootstrap
    for name in (broken, open_):
        produce(kafka, event(name, "k", 0))
    with consuming(kafka, broken, topics=[broken, open_], kafka=LIMITS, stall_after="2s") as run:
        run.has_handled(2)
        until(lambda: not run.consumer.health.lacking, within=20, what="no trouble")
        produce_bomb(kafka, broken)
        with open_transaction(kafka, open_):
            for said in (
                f"{broken}/0 does not go on at offset 1: Decompression",
                f"{open_}/0 is held back at offset 1: a transaction of a producer",
            ):
                until(lambda said=said: said in reason(run), within=30, what=said)  # type: ignore[misc]  # bound at once
            waited = time.monotonic() + 4
            until(lambda: time.monotonic() > waited, within=20, what="that both stand for long")
            assert "has stood" not in reason(run)
            until_counted(run, 1, "stuck", topic=broken)
            until_counted(run, 1, "held_back", topic=open_)
            assert run.count("stuck", topic=open_) == run.count("held_back", topic=broken) == 0
        until(lambda: f"{open_}/0" not in reason(run), within=20, what="it goes on")
        until_counted(run, 0, "held_back", topic=open_)


def reason(run: Consuming) -> str:
    return run.consumer.health.ready().reason


def test_a_note_that_covers_too_much_costs_nothing_that_can_be_read(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    forged = SkipNote(
        group=name,
        topic=name,
        partition=0,
        first=0,
        until=1_000_000,
        topic_id=None,
        error="none",
        by="somebody",
        at="2099-01-01T00:00:00+00:00",
        why="forged",
    )
    keep({"bootstrap.servers": kafka}, forged)
    produce(kafka, *(event(name, "k", n) for n in range(3)))
    produce_bomb(kafka, name, records=3)
    produce(kafka, *(event(name, "k", n) for n in range(3, 5)))
    with consuming(kafka, name, kafka=LIMITS) as run:
        run.has_handled(5)
        assert run.of_key("k") == [f"k-{n}" for n in range(5)]
        until_counted(run, 3, "stepped_over_total", topic=name)


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_batch_with_a_wrong_checksum_is_not_handled_and_nothing_after_it_is_lost(
    embedded: Stack, topic: MakeTopic, tmp_path: Path, assignor: str
) -> None:
    kafka, name = embedded.kafka.bootstrap, topic()
    configured(tmp_path, kafka, name)
    for number in range(4):  # a batch each time
        produce(kafka, *(event(name, "k", 3 * number + n) for n in range(3)), partition=0)
    damage(embedded.kafka.directory / "data", name, 3)
    with consuming(kafka, name, assignor=assignor) as run:
        until_said(run, "failed CRC32C check")
        until(
            lambda: committed(kafka, name)[0] == 3, within=20, what="what came before is committed"
        )
        assert run.of_key("k") == [f"k-{n}" for n in range(3)]
        status, said = skip(tmp_path, f"{name}/0/3")
        assert status == 0, said
        run.has_handled(9)
        assert run.of_key("k") == [f"k-{n}" for n in (0, 1, 2, *range(6, 12))]
        until_committed(kafka, name, 12)
        until_counted(run, 3, "stepped_over_total", topic=name)


def test_a_batch_in_a_dead_letter_topic_is_named_and_stepped_over(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name, dead, kafka = topic(), topic(), stack.kafka.bootstrap
    more = f'\n[retries]\ndead_letter_topic = "{dead}"\n'
    configured(tmp_path, kafka, name, **LIMITS)
    with (tmp_path / "c.toml").open("a") as file:
        file.write(more)
    opened = DeadTopic({"bootstrap.servers": kafka, **LIMITS}, dead)
    retries = {"dead_letter_topic": dead, "max_attempts": 1}
    for number in range(2):
        produce(kafka, event(name, "k", number))
        with consuming(kafka, name, lambda _: Dead("no"), retries=retries):
            until_committed(kafka, name, number + 1)
        produce_bomb(kafka, dead, records=2)
    with pytest.raises(DovecoteError, match=f"skip {dead}/0/1`"):
        opened.letters(Which())
    for place in (f"{dead}/0/1", f"{dead}/0/4"):
        status, said = skip(tmp_path, place)
        assert status == 0, said
    assert [letter.id for letter in opened.letters(Which())] == ["k-0", "k-1"]


def test_an_answer_that_is_too_large_for_the_client_is_said(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, event(name, "k", 0, "v" * 900_000))
    small = {"receive.message.max.bytes": "500000", "fetch.max.bytes": "1000"}
    with consuming(kafka, name, kafka={**small, "message.max.bytes": "1000"}) as run:
        until(
            lambda: "increase receive.message.max.bytes" in run.consumer.health.lacking,
            within=20,
            what="said so",
        )
    assert run.handled == []
