"""`dovecote topic`: topics are listed, made, shown and read, without Python of one's own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from dovecote.cli.main import app
from outbox import Event
from outbox.envelope import Pair, encode
from outbox.kafka import PARTITIONER
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient, until

TYPE = "order.placed"


def run(stack: Servers, *words: str) -> Result:
    return CliRunner().invoke(app, ["topic", *words, "--bootstrap", stack.kafka.bootstrap])


def told(stack: Servers, *words: str) -> list[dict[str, object]]:
    """Return what a command prints as JSON."""
    done = run(stack, *words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return [json.loads(line) for line in done.output.splitlines()]


def send(stack: Servers, topic: str, *events: Event, more: Sequence[Pair] = ()) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap, **PARTITIONER})
    for event in events:
        key, value, headers = encode(event)
        producer.produce(topic, value, key, headers=[*headers, *more])
    assert producer.flush(patient(30)) == 0


def order(number: int, key: str = "k") -> Event:
    return Event(
        topic="t", key=key, type=TYPE, source="/shop", id=f"e{number}", value={"n": number}
    )


def test_a_topic_that_was_made_is_listed_and_shown(stack: Servers) -> None:
    name = f"made-{uuid4().hex}"
    done = run(stack, "create", name, "--partitions", "3", "--set", "retention.ms=3600000")
    assert done.output == f"created topic {name}\n"

    def settled() -> dict[str, object]:
        """Return what is listed; a new topic has no leaders for a moment."""
        (found,) = [each for each in told(stack, "list") if each["topic"] == name]
        return found if found["offsets"] is not None else {}

    listed = until(settled, within=30, what="leaders of the new topic")
    assert (listed["partitions"], listed["replicas"], listed["offsets"]) == (3, [1, 1, 1], 0)
    assert listed["retention.ms"] == "3600000"
    (line,) = [each for each in run(stack, "list").output.splitlines() if each.startswith(name)]
    assert line.split()[1:] == ["3", "1", "0", "1h"]

    send(stack, name, order(1))
    (shown,) = told(stack, "show", name)
    assert shown["config"] == {"retention.ms": "3600000"}
    partitions = shown["partitions"]
    assert isinstance(partitions, list)
    assert sorted(each["end"] for each in partitions) == [0, 0, 1]
    assert "retention.ms 3600000" in run(stack, "show", name).output

    again = run(stack, "create", name, f"{name}-2")
    assert again.exit_code != 0
    assert again.output == f"created topic {name}-2\n"
    assert "is there already" in str(again.exception)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["create", "a/b"], "Kafka takes no topic 'a/b' like this"),
        (["create", "a", "--set", "no.such=1"], "Kafka takes no topic 'a' like this"),
        (["create", "a", "--set", "retention.ms"], "is no setting: write NAME=VALUE"),
        (["create", "a", "--replicas", "9"], "Kafka takes no topic 'a' like this"),
        (["show", "no-such-topic"], "no topic 'no-such-topic' that we may see"),
        (["tail", "no-such-topic"], "no topic 'no-such-topic' that we may see"),
        (["tail", "x", "--from", "yesterday"], "is no start"),
        (["tail", "x", "--where", "value."], "filter"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    stack: Servers, words: list[str], why: str
) -> None:
    done = run(stack, *words)
    assert done.exit_code != 0
    assert why in str(done.exception)
    assert "\n" not in str(done.exception).strip()


def test_events_are_shown_decoded_from_where_one_asks(stack: Servers, topic: MakeTopic) -> None:
    name = topic(2)
    send(stack, name, *(order(number, f"k{number % 3}") for number in range(20)))

    found = told(stack, "tail", name, "--from", "beginning")
    assert sorted(str(each["id"]) for each in found) == sorted(f"e{n}" for n in range(20))
    first = next(each for each in found if each["id"] == "e0")
    assert (first["key"], first["type"], first["value"]) == ("k0", TYPE, {"n": 0})

    assert len(told(stack, "tail", name)) <= 20
    assert told(stack, "tail", name, "--from", "end") == []
    assert len(told(stack, "tail", name, "--from", "5m ago", "--limit", "4")) == 4
    of_key = told(stack, "tail", name, "--from", "beginning", "--key", "k1")
    assert [each["id"] for each in of_key] == ["e1", "e4", "e7", "e10", "e13", "e16", "e19"]
    large = told(stack, "tail", name, "--from", "beginning", "--where", "value.n >= 18")
    assert {each["id"] for each in large} == {"e18", "e19"}
    assert [
        each["id"] for each in told(stack, "tail", name, "--from", "beginning", "--id", "e3")
    ] == ["e3"]


def test_odd_records_are_shown_and_steer_no_terminal(stack: Servers, topic: MakeTopic) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    producer.produce(name, b"\x1b[2J", b"\xff\n", headers=[("ce_time", b"never")])
    producer.produce(name, None, None, headers=[("\x1b", b"\x00")])
    assert producer.flush(patient(30)) == 0

    lines = run(stack, "tail", name, "--from", "beginning").output.splitlines()
    assert len(lines) == 2
    assert "unreadable: " in lines[0]
    assert "no value" in lines[1]
    assert all(line.isprintable() for line in lines)
    first, _ = told(stack, "tail", name, "--from", "beginning")
    assert first["key"] == {"hex": "ff0a"}


def test_records_of_an_open_transaction_are_shown_on_request(
    stack: Servers, topic: MakeTopic
) -> None:
    name = topic()
    producer = Producer(
        {"bootstrap.servers": stack.kafka.bootstrap, "transactional.id": uuid4().hex}
    )
    producer.init_transactions(patient(30))
    producer.begin_transaction()
    producer.produce(name, b"1")
    producer.flush(patient(30))
    try:
        assert told(stack, "tail", name, "--from", "beginning") == []
        (shown,) = told(stack, "tail", name, "--from", "beginning", "--uncommitted")
        assert shown["value"] == 1
    finally:
        producer.abort_transaction(patient(30))


def test_following_shows_what_comes(stack: Servers, topic: MakeTopic) -> None:
    name = topic()
    command = [sys.executable, "-m", "dovecote", "topic", "tail", name, "--follow", "--json"]
    command += ["--limit", "2", "--bootstrap", stack.kafka.bootstrap]
    send(stack, name, order(1))
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == "e1"
        send(stack, name, order(2))
        assert json.loads(process.stdout.readline())["id"] == "e2"
        assert process.wait(patient(30)) == 0
