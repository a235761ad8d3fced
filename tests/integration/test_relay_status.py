"""`dovecote relay status` reports the same as the servers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovecote.devstack import Stack
from outbox import Event
from outbox.schema.capture import use_wal
from tests.support.commands import status
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import Relays, commit, event, installed, published, relays
from tests.support.waiting import until


@pytest.fixture
def fleet(stack: Stack, database: str, tmp_path: Path) -> Iterator[Relays]:
    with relays(tmp_path, database, stack.kafka.bootstrap) as started:
        yield started


def told(fleet: Relays) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(status(fleet, "--json").stdout)
    return fields


def test_it_follows_an_outbox_from_the_first_event_to_the_last(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    nothing = status(fleet)
    assert nothing.returncode == 1
    assert "run `dovecote init outbox`" in nothing.stderr
    installed(fleet.dsn)
    commit(fleet.dsn, *[event(name, number) for number in range(3)])
    waiting = told(fleet)
    assert (waiting["name"], waiting["active"], waiting["lag_rows"]) == (fleet.name, None, 3)
    assert waiting["lag_seconds"] > 0
    assert status(fleet).returncode == 1
    relay = fleet.active()
    published(fleet, name, 3)
    until(lambda: told(fleet)["lag_rows"] == 0, within=10, what="no lag")

    def shown() -> str:
        done = status(fleet)
        return done.stdout if done.returncode == 0 else ""

    assert "active   127.0.0.1 (session " in until(shown, within=10, what="all is well")
    assert relay.terminate() == 0
    gone = status(fleet)
    assert (gone.returncode, gone.stderr) == (1, "")
    assert "active   no relay" in gone.stdout


@pytest.mark.parametrize(
    ("replaced", "says"),
    [
        ({"bootstrap": "127.0.0.1:1"}, "Kafka does not answer at 127.0.0.1:1"),
        ({"dsn": "host=127.0.0.1 port=1 password=tops3cret"}, "Postgres: "),
    ],
)
def test_a_server_out_of_reach_is_named(
    fleet: Relays, replaced: dict[str, Any], says: str
) -> None:
    failed = status(fleet, **replaced)
    assert failed.returncode == 1
    assert says in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "tops3cret" not in failed.stderr


def test_what_waits_in_the_log_is_told_before_anything_was_published(
    fleet: Relays, topic: MakeTopic
) -> None:
    installed(fleet.dsn)
    use_wal(fleet.dsn, "outbox")
    before = told(fleet)["lag_bytes"]
    commit(fleet.dsn, Event(topic=topic(1), type="Grown", source="/tests", value=bytes(100_000)))
    assert told(fleet)["lag_bytes"] > before + 100_000
    assert re.search(r"lag +\d\d\d,\d\d\d bytes of the write-ahead log", status(fleet).stdout)
