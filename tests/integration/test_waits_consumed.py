"""A caller waits for an event from its outbox until a real consumer's effects are committed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dedup import Applied, TimedOut, handled
from dedup.inbox import schema as inbox_schema
from outbox import Event, Published, published, write
from tests.support.consuming import consuming, member
from tests.support.finding import without_password
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import Relays
from tests.support.waiting import patient, until

LONG = patient(60)
LOCK = 4242
"""Each handler takes it before it can commit."""

HANDLER = """
def handle(event, tx):
    tx.execute("INSERT INTO effects VALUES (%s)", [event.id])
    tx.execute("SELECT pg_advisory_xact_lock_shared(4242)")
"""


@pytest.fixture
def shop(fleet: Relays, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A database with an outbox, an inbox and effects; a topic; and a relay of the outbox."""
    with psycopg.connect(fleet.dsn) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (id text NOT NULL)")
    monkeypatch.setenv("PGPASSWORD", str(conninfo_to_dict(fleet.dsn).get("password", "")))
    fleet.active()
    return fleet.dsn, topic(2)


def place(dsn: str, topic: str) -> Event:
    made = Event(topic=topic, type="OrderPlaced", source="/shop", key="k", value={"order": 1})
    with psycopg.connect(dsn) as conn:
        write(conn, made)
    return made


def wait(dsn: str, of: Event, timeout: float = LONG) -> Applied | TimedOut:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return handled(conn, of, by=of.topic, timeout=timeout)


def effects(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM effects")]


def configure(folder: Path, fleet: Relays, topic: str) -> None:
    (folder / "handling.py").write_text(HANDLER)
    (folder / "c.toml").write_text(
        f'topics = ["{topic}"]\ngroup = "{topic}"\nhandler = "handling:handle"\n'
        f'commit_every = "100ms"\n[inbox]\ndsn = "{without_password(fleet.dsn)}"\n'
        f'[kafka]\n"bootstrap.servers" = "{fleet.bootstrap}"\n"session.timeout.ms" = 6000\n'
    )


@contextmanager
def locked(dsn: str) -> Iterator[None]:
    """Let no handler commit within the block."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        yield


def is_held(dsn: str) -> bool:
    """Return whether a handler waits for the lock."""
    query = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
    with psycopg.connect(dsn) as conn:
        return conn.execute(query, [LOCK]).fetchone() is not None


def test_the_caller_returns_when_the_event_went_all_the_way(
    fleet: Relays, shop: tuple[str, str]
) -> None:
    dsn, topic = shop
    inbox: dict[str, Any] = {"dsn": without_password(dsn)}
    with consuming(fleet.bootstrap, topic, inbox=inbox) as running:
        made = place(dsn, topic)
        with psycopg.connect(dsn, autocommit=True) as conn:
            assert isinstance(published(conn, made, timeout=LONG), Published)
            found = handled(conn, made, by=topic, timeout=LONG)
        assert isinstance(found, Applied), found
        assert found.round == 0
        assert running.ids == [made.id]


def test_a_consumer_that_starts_later_answers_a_caller_that_waits(
    fleet: Relays, shop: tuple[str, str]
) -> None:
    dsn, topic = shop
    inbox: dict[str, Any] = {"dsn": without_password(dsn)}
    with consuming(fleet.bootstrap, topic, inbox=inbox):
        assert isinstance(wait(dsn, place(dsn, topic)), Applied)
    made = place(dsn, topic)
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert isinstance(published(conn, made, timeout=LONG), Published)
    # Kafka has it, and nobody handles it.
    assert isinstance(wait(dsn, made, 0.5), TimedOut)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait, dsn, made)
        with consuming(fleet.bootstrap, topic, inbox=inbox):
            assert isinstance(waiting.result(), Applied)


def test_a_consumer_that_is_killed_within_its_transaction_has_handled_nothing(
    fleet: Relays, shop: tuple[str, str], tmp_path: Path
) -> None:
    dsn, topic = shop
    configure(tmp_path, fleet, topic)
    with ThreadPoolExecutor() as pool:
        with locked(dsn), member(tmp_path) as killed:
            made = place(dsn, topic)
            waiting = pool.submit(wait, dsn, made)
            until(lambda: is_held(dsn), within=40, what="the handler has done its work")
            killed.kill()
            killed.wait(patient(10))
            assert isinstance(wait(dsn, made, 0.5), TimedOut)
            assert not waiting.done()
        with member(tmp_path):
            assert isinstance(waiting.result(), Applied), (tmp_path / "log").read_text()
            assert effects(dsn) == [made.id]
