"""`dovecote consume status`: members, offsets, lag, retries and dead letters, from Kafka alone."""

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dedup.rules.policies.results import Dead, Result, Retry
from dovecote.cli.main import app
from outbox import Event
from tests.support.consuming import consuming, event, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient, until


def told(config: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(
        app, ["consume", "--status", "--config", str(config), "--json", *words]
    )
    assert done.stdout, repr(done.exception)
    return done.exit_code, json.loads(done.stdout)


def test_a_group_is_shown_while_it_works_and_after_it_has_ended(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    bootstrap = stack.kafka.bootstrap
    name, retry, dead = topic(2), topic(1), topic(1)
    config = tmp_path / "consume.toml"
    config.write_text(
        f'topics = ["{name}"]\ngroup = "{name}"\nhandler = "shop:handle"\n'
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
        f'[retries]\ndead_letter_topic = "{dead}"\n'
        f'tiers = [{{ topic = "{retry}", wait = "1h" }}]\n'
    )
    gate = threading.Event()

    def handle(given: Event) -> Result | None:
        if given.id == "b-1":
            return Dead("no")
        if given.id == "r-1":
            return Retry("later", after=timedelta(hours=1))
        if given.id == "k-0":
            assert gate.wait(patient(60))
        return None

    produce(bootstrap, event(name, "b", 1), event(name, "r", 1))
    produce(bootstrap, event(name, "k", 0), *(event(name, f"k{n}", n) for n in range(20)))
    retries = {
        "dead_letter_topic": dead,
        "max_attempts": 3,
        "tiers": [{"topic": retry, "wait": "1h"}],
    }
    with consuming(bootstrap, name, handle, retries=retries) as running:
        try:
            running.has_handled(23)

            def working() -> dict[str, Any]:
                it = told(config)[1]
                seen = it["state"], it["dead"], [each["partitions"] for each in it["members"]]
                held = any(each["held_back"] for each in it["partitions"])
                due = any(each["due"] is not None for each in it["retries"])
                return it if seen == ("working", 1, [3]) and held and due else {}

            found = until(working, within=30, what="one member works, and a partition is held")
            held = next(each for each in found["partitions"] if each["held_back"])
            assert held["lag"] >= 1
            assert held["seconds"] >= 0
            assert held["member"] == found["members"][0]["id"]

            def shown() -> str:
                text = CliRunner().invoke(app, ["consume", "status", "-c", str(config)])
                return text.output if text.exit_code == 0 else ""

            text = until(shown, within=30, what="it is told to work")
            assert f"group {name}: working" in text
            assert "held back" in text
            assert "first due" in text
            assert "dead      1 letter; see" in text
            status, found = told(config, "--metrics", "http://127.0.0.1:9")
            assert (status, found["state"]) == (1, "failing")
        finally:
            gate.set()
    produce(bootstrap, event(name, "later", 1))

    def stalled() -> dict[str, Any]:
        status, it = told(config)
        return it if (status, it["state"]) == (1, "stalled") else {}

    found = until(stalled, within=30, what="it is told to stand still")
    assert found["why"].startswith("no member is there, and ")
    assert found["members"] == []


def test_what_is_wrong_is_said(stack: Servers, topic: MakeTopic, tmp_path: Path) -> None:
    file = tmp_path / "watch.toml"
    kafka = f'[kafka]\n"bootstrap.servers" = "{stack.kafka.bootstrap}"\n'
    name = topic(1)
    file.write_text(
        f'{kafka}[sources.consumer.a]\ntopics = ["{name}"]\ngroup = "{name}"\n'
        '[sources.consumer.b]\ntopics = ["not.there"]\ngroup = "nobody"\n'
    )
    done = CliRunner().invoke(app, ["consume", "status", "-c", str(file)])
    assert done.exit_code == 1
    assert "consumer a, group" in done.output
    assert "not asked no topic 'not.there' that we may see" in done.output
    file.write_text(f"{kafka}[sources]\n")
    done = CliRunner().invoke(app, ["consume", "status", "-c", str(file)])
    assert "names no consumer" in str(done.exception)
    file.write_text(kafka)
    done = CliRunner().invoke(app, ["consume", "status", "-c", str(file)])
    assert "`group` or `topics` is missing" in str(done.exception)
