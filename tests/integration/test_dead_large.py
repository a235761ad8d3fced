"""Dead letters of large records keep their value, or say where it is, and come back with it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from dedup.kafka.letters import Letters
from dedup.retries import copies
from dedup.rules.policies.results import Dead
from dedup.rules.record import Record
from dovecote.cli.main import app
from dovecote.process.topics import most_bytes
from outbox.envelope import ID, WITHOUT_VALUE, delivery
from outbox.errors import DovecoteError
from outbox.event import Event
from outbox.kafka import MOST_BYTES
from tests.support.consuming import committed, consuming
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

LARGE = b'"' + b"x" * 3_500_000 + b'"'
SMALL = b'"y"'
SWIFT = {"max_attempts": 2, "base": "20ms", "ceiling": "50ms"}


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@pytest.fixture
def orders(kafka: str, topic: MakeTopic) -> str:
    """A topic with a large record and a small one."""
    name = topic(1, max_message_bytes="6000000")
    producer = Producer({"bootstrap.servers": kafka, "message.max.bytes": 6_000_000})
    for value, id_ in ((LARGE, b"big"), (SMALL, b"small")):
        producer.produce(name, value, b"k", headers=[(ID, id_), ("theirs", b"1")])
    assert producer.flush(patient(30)) == 0
    return name


def given_up(kafka: str, orders: str, dead: str, **more: Any) -> Iterator[Record]:
    """Give up both records, and yield their letters."""
    retries = {"dead_letter_topic": dead, **SWIFT, **more}
    with consuming(kafka, orders, lambda _: Dead("no"), retries=retries):
        until(lambda: committed(kafka, orders)[0] == 2, within=30, what="both are given up")
    for message in consume(kafka, dead):
        yield Record(dead, 0, 0, 0, message.key(), message.value(), message.headers() or ())  # type: ignore[arg-type]  # as a consumer gives them


def requeue(folder: Path, kafka: str, orders: str, dead: str, *words: str) -> Any:
    config = folder / "consume.toml"
    config.write_text(
        f'topics = ["{orders}"]\ngroup = "{orders}"\n'
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n'
        f'[retries]\ndead_letter_topic = "{dead}"\n'
    )
    return CliRunner().invoke(app, ["consume", "dead", "requeue", *words, "--config", str(config)])


def handled(kafka: str, orders: str) -> dict[str, int]:
    sizes: dict[str, int] = {}

    def handle(event: Event) -> None:
        assert ("theirs", b"1") in event.headers
        sizes[event.id] = len(str(event.value))

    with consuming(kafka, orders, handle):
        until(lambda: len(sizes) == 2, within=30, what="both are handled")
    return sizes


def test_a_topic_that_is_large_enough_takes_the_whole_record(
    kafka: str, orders: str, topic: MakeTopic, tmp_path: Path
) -> None:
    dead = topic(1, max_message_bytes="8000000")

    letters = list(given_up(kafka, orders, dead))

    assert [each.value for each in letters] == [LARGE, SMALL]
    assert requeue(tmp_path, kafka, orders, dead, "--all").exit_code == 0
    assert handled(kafka, orders) == {"big": len(LARGE) - 2, "small": 1}


def test_a_letter_without_its_value_says_where_it_is_and_gets_it_back(
    kafka: str, orders: str, topic: MakeTopic, tmp_path: Path
) -> None:
    dead = topic(1)

    large, small = given_up(kafka, orders, dead)

    assert (large.value, small.value) == (None, SMALL)
    assert dict(large.headers)[WITHOUT_VALUE] == copies.left((orders, 0, 0), LARGE).encode()
    error = delivery(large).error or ""
    assert f"topic '{dead}' takes 1,048,588 bytes, and these are 3,500," in error
    assert "raise the topic's max.message.bytes" in error
    assert error.endswith("before that: no")
    assert requeue(tmp_path, kafka, orders, dead, "--all").exit_code == 0
    assert handled(kafka, orders) == {"big": len(LARGE) - 2, "small": 1}


def test_what_cannot_be_requeued_is_named_and_holds_up_no_other(
    kafka: str, orders: str, topic: MakeTopic, tmp_path: Path
) -> None:
    dead, narrow = topic(1, max_message_bytes="8000000"), topic(1, max_message_bytes="50000")
    records = {
        "whole": Record(orders, 0, 0, 0, b"k", LARGE, [(ID, b"whole")]),
        "elsewhere": Record("elsewhere", 0, 0, 0, b"k", b"1", [(ID, b"elsewhere")]),
        "changed": Record(orders, 0, 1, 0, b"k", b"other", [(ID, b"changed")]),
        "gone": Record(orders, 0, 77, 0, b"k", b"1", [(ID, b"gone")]),
        "nowhere": Record(orders, 0, 1, 0, b"k", b"1", [(ID, b"nowhere")]),
        "fits": Record(orders, 0, 1, 0, b"k", SMALL, [(ID, b"fits")]),
    }
    with Letters({"bootstrap.servers": kafka}) as letters:
        for id_, record in records.items():
            if id_ == "whole":
                copy = copies.dead(record, record.identity, now=1, error="no")
            else:
                lacks = copies.left(None, b"1") if id_ == "nowhere" else None
                copy = copies.emptied(record, now=1, error="no", lacks=lacks)
            letters.send(dead, copy)

    done = requeue(tmp_path, kafka, orders, dead, "--all", "--json", "--to", narrow)

    assert isinstance(done.exception, DovecoteError)
    assert "5 of 6 cannot be requeued" in str(done.exception)
    told = {each["id"]: each for each in map(json.loads, done.output.splitlines())}
    assert told["fits"]["action"] == "requeued"
    assert [message.value() for message in consume(kafka, narrow)] == [SMALL]
    why = {id_: each["why"] for id_, each in told.items() if each["action"] == "left"}
    assert f"topic '{narrow}' takes 50,000 bytes, and these are 3,500," in why["whole"]
    assert "topic 'elsewhere', which is not in the settings" in why["elsewhere"]
    assert f"which was at {orders}/0/1, is not that of the record there" in why["changed"]
    assert f"which was at {orders}/0/77, is no longer there" in why["gone"]
    assert "lacks its value of 1 bytes, which no topic has" in why["nowhere"]


def test_small_records_are_not_refused_for_what_lies_beside_them(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    """The client puts records together, up to a megabyte; a topic may take less than that."""
    dead, narrow = topic(1), topic(1, max_message_bytes="20000")
    with Letters({"bootstrap.servers": kafka}) as letters:
        for number in range(40):
            record = Record("orders", 0, number, 0, b"k", b"x" * 9_000, [(ID, b"e%d" % number)])
            letters.send(dead, copies.dead(record, record.identity, now=1, error="no"))

    assert requeue(tmp_path, kafka, "orders", dead, "--all", "--to", narrow).exit_code == 0
    assert len(consume(kafka, narrow)) == 40


def test_the_limit_of_a_topic_is_asked_for(kafka: str, topic: MakeTopic) -> None:
    name = topic(1, max_message_bytes="50000")
    assert most_bytes({"bootstrap.servers": kafka}, [name, "no-such-topic"]) == {name: 50_000}
    assert most_bytes({"bootstrap.servers": kafka}, []) == {}
    assert most_bytes({"bootstrap.servers": kafka}, [topic(1)]).popitem()[1] < MOST_BYTES
