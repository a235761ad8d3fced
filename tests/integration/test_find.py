"""`dovecote find`: twelve events in twelve states of real, running parts, and each is right."""

import json
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.observe.find import Life, Query, find
from dovecote.observe.sources import WatchSettings, read
from outbox import Event
from outbox.envelope import ATTEMPT, ERROR, ORIGIN, encode
from tests.support.consuming import produce
from tests.support.finding import System, system
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import TOKEN
from tests.support.relaying import Relays
from tests.support.waiting import patient


@pytest.fixture(autouse=True)
def _secrets(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    password = conninfo_to_dict(stack.postgres.dsn).get("password", "")
    monkeypatch.setenv("PGPASSWORD", str(password))
    monkeypatch.setenv("FIND_TOKEN", TOKEN)


def test_twelve_events_in_twelve_states_are_found_where_they_are(
    fleet: Relays, topic: MakeTopic, tmp_path: Path
) -> None:
    with system(fleet, topic, tmp_path) as parts:
        _unpublished_parked_and_held(parts)
        _consumed(parts)
        _pushed(parts)
        _by_the_command(parts)
        _of_a_key(parts)


def _unpublished_parked_and_held(parts: System) -> None:
    life = parts.becomes("unpublished", "outbox/shop", "unpublished")
    assert life.where == "in outbox/shop, not published"
    assert life.waits_for == "a relay of outbox/shop: none is active"
    life = parts.becomes("parked", "outbox/shop", "parked")
    assert "MSG_SIZE_TOO_LARGE" in life.where
    words = f"{parts.events['parked'].id} --part outbox/shop --config FILE"
    assert f"`dovecote dead requeue {words}`" in (life.waits_for or "")
    life = parts.becomes("held", "outbox/shop", "held")
    first = parts.events["parked"].id
    assert life.waits_for == f"event {first} of its key, which is parked"
    assert [each.what for each in life.events[0].steps][-1] == "held"


def _consumed(parts: System) -> None:
    ahead = parts.becomes("ahead", "consumer/billing", "ahead")
    assert "it has none" in (ahead.waits_for or "")
    working = parts.becomes("working", "consumer/shipping", "working")
    assert "in work at consumer/shipping" in working.where
    handled = parts.becomes("handled", "consumer/shipping", "handled")
    assert [each.what for each in handled.events[0].steps][-2:] == ["published", "handled"]
    assert handled.events[0].state("consumer/audit") == "completed"
    retry = parts.becomes("retry", "consumer/shipping", "retry")
    assert "for attempt 2 of consumer/shipping" in retry.where
    assert "the printer is on fire" in retry.where
    assert (retry.waits_for or "").startswith("consumer/shipping, at 2")
    dead = parts.becomes("dead", "consumer/shipping", "dead")
    assert "no such address" in dead.where
    assert "dovecote dead requeue " in (dead.waits_for or "")
    requeued = parts.becomes("requeued", "consumer/shipping", "handled")
    whats = [each.what for each in requeued.events[0].steps]
    # One transaction writes the copy and the fate of the letter.
    assert (whats[-4], {*whats[-3:-1]}, whats[-1]) == (
        "given up", {"requeued", "put aside"}, "handled",
    )  # fmt: skip
    assert "requeued from the dead letters of consumer/shipping" in requeued.where
    skipped = parts.becomes("skipped", "consumer/audit", "skipped")
    assert "ann decided it" in skipped.where


def _pushed(parts: System) -> None:
    delivered = parts.becomes("delivered", f"push/main/{parts.topics['good']}", "delivered")
    assert [each.what for each in delivered.events[0].steps][-1] == "attempt 1"
    retrying = parts.becomes("retrying", f"push/main/{parts.topics['bad']}", "retrying")
    assert "got 503" in retrying.where
    paused = parts.becomes("paused", f"push/main/{parts.topics['paused']}", "paused")
    assert "dovecote push resume" in (paused.waits_for or "")


def run(parts: System, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["find", *words, "--config", str(parts.file)])
    return done.exit_code, done.output


def _by_the_command(parts: System) -> None:
    for name, words in (
        ("unpublished", "waits for  a relay of outbox/shop: none is active"),
        ("handled", "now        handled by consumer/shipping"),
        ("dead", "now        a dead letter of consumer/shipping"),
    ):
        code, text = run(parts, parts.events[name].id)
        assert code == 0, text
        assert words in text
    code, text = run(parts, parts.events["retry"].id.upper(), "--json")
    told = json.loads(text)
    assert code == 0
    assert told["found"] is True
    assert told["failures"] == []
    assert {"query", "where", "waits_for", "steps", "looked"} <= told.keys()
    nowhere = parts.made("nowhere", parts.topics["orders"])
    code, text = run(parts, nowhere.id)
    assert code == 1
    assert "not found: in none of the parts that were looked at" in text
    assert f"looked at    topic/{parts.topics['orders']}, from 20" in text


def _of_a_key(parts: System) -> None:
    life = find(parts.watch(), Query(key=b"bad"))
    assert [each.id for each in life.events] == [
        parts.events["parked"].id,
        parts.events["held"].id,
    ]
    assert [each.state("outbox/shop") for each in life.events] == ["parked", "held"]
    newest = find(parts.watch(), Query(key=b"bad", limit=1))
    assert [each.id for each in newest.events] == [parts.events["held"].id]
    code, text = run(parts, "--key", "dead", "--json")
    assert code == 0, text
    (event,) = json.loads(text)["events"]
    assert {each["state"] for each in event["parts"]} >= {"dead", "published"}
    code, text = run(parts, "--key-hex", b"working".hex())
    assert code == 0, text
    assert "in work at consumer/shipping" in text


def life_of(text: str, folder: Path, query: Query) -> Life:
    file = folder / "watch.toml"
    file.write_text(text, encoding="utf-8")
    return find(read(WatchSettings, file), query, seconds=patient(5))


def test_parts_that_are_away_are_said_beside_the_rest(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    event = Event(topic=name, key="k", type="T", value=1)
    produce(stack.kafka.bootstrap, event)
    text = f"""
[kafka]
"bootstrap.servers" = "{stack.kafka.bootstrap}"
[sources.outbox.gone]
dsn = "host=127.0.0.1 port=1 dbname=gone"
[sources.consumer.here]
group = "here-{name}"
topics = ["{name}", "missing-{name}"]
[sources.consumer.elsewhere]
group = "elsewhere"
topics = ["{name}"]
kafka = {{ "bootstrap.servers" = "127.0.0.1:1" }}
[sources.push.gone]
url = "http://127.0.0.1:1"
"""
    life = life_of(text, tmp_path, Query(id=event.id))
    assert life.found
    assert life.events[0].state("consumer/here") == "ahead"
    failed = {each.part: each.error for each in life.failures}
    assert failed.keys() >= {"outbox/gone", "push/gone", "kafka/127.0.0.1:1"}
    assert "there is no topic" in failed[f"topic/missing-{name}"]
    other = life_of(text, tmp_path, Query(id=str(event.id)[:-4] + "0000"))
    assert not other.found
    assert "the answer is incomplete" in other.where


@pytest.mark.parametrize("id_", ["a\x1b[31mb", "'; DROP TABLE events; --", "é" * 500, "x@y@z"])
def test_an_id_with_strange_characters_is_looked_for(
    stack: Servers, topic: MakeTopic, tmp_path: Path, id_: str
) -> None:
    name = topic()
    text = f'[kafka]\n"bootstrap.servers" = "{stack.kafka.bootstrap}"\n'
    missing = life_of(text, tmp_path, Query(id=id_, topic=name))
    assert (missing.found, list(missing.failures)) == (False, [])
    if "\x1b" not in id_:
        produce(stack.kafka.bootstrap, Event(topic=name, key="k", type="T", id=id_, value=1))
        assert life_of(text, tmp_path, Query(id=id_, topic=name)).found


def test_a_place_names_the_record_there(stack: Servers, topic: MakeTopic, tmp_path: Path) -> None:
    name, key = topic(), bytes([0, 255])
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    producer.produce(name, b"v", key)
    assert producer.flush(patient(30)) == 0
    text = f'[kafka]\n"bootstrap.servers" = "{stack.kafka.bootstrap}"\n'
    life = life_of(text, tmp_path, Query(id=f"{name}/0/0"))
    assert life.found, life.as_json()
    assert life.as_json()["events"][0]["key"] == {"hex": "00ff"}
    # The id that decoded events have, with Kafka's id of the topic.
    again = life_of(text, tmp_path, Query(id=life.events[0].id))
    assert [each.id for each in again.events] == [life.events[0].id]
    assert not life_of(text, tmp_path, Query(id=f"{name}/0/7")).found
    by_key = life_of(text, tmp_path, Query(key=key, topic=name))
    assert [each.id for each in by_key.events] == [life.events[0].id]
    assert not life_of(text, tmp_path, Query(key=b"", topic=name)).found
    missing = life_of(text, tmp_path, Query(id=str(uuid4()), topic=f"no-{name}"))
    assert "there is no topic" in missing.failures[0].error


@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_a_record_is_found_whatever_the_unit_of_its_timestamp(
    stack: Servers, topic: MakeTopic, tmp_path: Path, unit: int
) -> None:
    name, dead = topic(1, message_timestamp_after_max_ms=str(2**63 - 1)), topic()
    event = Event(topic=name, key="k", type="T", value=1)
    headers, at = encode(event)[2], int(event.time.timestamp() * 1000)
    history: list[tuple[str, str | bytes | None]] = [
        *headers,
        (ATTEMPT, b"1"),
        (ORIGIN, f"{name}/0/0".encode()),
        (ERROR, b"no"),
    ]
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    producer.produce(name, b"1", b"k", headers=[*headers], timestamp=at * unit)
    producer.produce(dead, b"1", b"k", headers=history, timestamp=at + 5_000)
    assert producer.flush(patient(30)) == 0
    text = f"""
[kafka]
"bootstrap.servers" = "{stack.kafka.bootstrap}"
[sources.consumer.billing]
group = "billing-{name}"
topics = ["{name}"]
retries = {{ dead_letter_topic = "{dead}" }}
"""
    for since in (None, event.time - timedelta(minutes=1)):
        life = life_of(text, tmp_path, Query(id=event.id, since=since))
        assert [each.id for each in life.events] == [event.id], life.as_json()
        assert life.events[0].state("consumer/billing") == "dead", life.as_json()
