"""Rows that Postgres would hide are an error, and never count as published rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import outbox
from dedup.inbox import schema as inbox_schema
from dovecote.devstack import Stack
from dovecote.push.store import schema as push_schema
from outbox import Event, NotAllowed, schema, write
from outbox.event import Limits
from outbox.producer.fallback import Fallback
from outbox.schema import Roles
from relay.postgres.connect import connect
from tests.support.commands import doctor, status
from tests.support.crews import new_role
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import Relays, event, published, relays

_DISABLE = "DISABLE ROW LEVEL SECURITY`; who may read there, rights say already"


class Crew(NamedTuple):
    """Connection strings: of a superuser, of the outbox's owner, of its writer and its relay."""

    admin: str
    owner: str
    writer: str
    relay: str


@pytest.fixture
def crew(database: str) -> Iterator[Crew]:
    with (
        new_role(database, "owner") as (role, owner),
        new_role(database, "writer") as (writing, writer),
        new_role(database, "relay") as (relaying, relay),
    ):
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(f"GRANT ALL ON DATABASE {conn.info.dbname} TO {role}".encode())
        with psycopg.connect(owner) as conn:
            schema.install(conn, roles=Roles([writing], [relaying]))
        yield Crew(database, owner, writer, relay)


@pytest.fixture
def fleet(crew: Crew, stack: Stack, tmp_path: Path) -> Iterator[Relays]:
    with relays(tmp_path, crew.relay, stack.kafka.bootstrap) as started:
        yield started


def put(dsn: str, *events: Event) -> None:
    with psycopg.connect(dsn) as conn:
        write(conn, *events)


def alter(crew: Crew, table: str, what: str) -> None:
    with psycopg.connect(crew.owner, autocommit=True) as conn:
        conn.execute(f"ALTER TABLE outbox.{table} {what} ROW LEVEL SECURITY".encode())


def test_a_relay_whose_rows_are_hidden_ends_and_says_so_and_goes_on_once_they_are_not(
    crew: Crew, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active()
    put(crew.writer, event(name, 0))
    published(fleet, name, 1)
    alter(crew, "events", "ENABLE")
    put(crew.writer, event(name, 1))
    # Nothing is published behind its back, and nothing looks well.
    assert relay.wait() == 1
    assert 'affected by row-level security policy for table "events"' in relay.log
    assert _DISABLE in relay.log
    for again in (fleet.start().wait(), status(fleet).returncode):
        assert again == 1
    found = doctor(fleet)
    assert found.returncode == 1
    assert "fail  row-level security is on for table events of schema 'outbox'" in found.stdout
    assert 'run `ALTER TABLE "outbox"."events" DISABLE ROW LEVEL SECURITY`' in found.stdout
    alter(crew, "events", "DISABLE")
    fleet.active()
    published(fleet, name, 2)


@pytest.mark.parametrize("table", ["parked", "parked_commands", "claims", "reading", "migrations"])
def test_no_table_is_read_whose_rows_are_hidden(crew: Crew, fleet: Relays, table: str) -> None:
    alter(crew, table, "ENABLE")
    relay = fleet.start()
    assert relay.wait() == 1
    assert f"row-level security is on for table {table} of schema 'outbox'" in relay.log
    assert "Traceback" not in relay.log


@pytest.mark.parametrize("table", ["events", "events_0", "relays", "sharding", "capture"])
def test_what_is_hidden_from_the_owner_is_hidden_from_our_functions(
    crew: Crew, fleet: Relays, table: str
) -> None:
    alter(crew, table, "ENABLE")
    alter(crew, table, "FORCE")
    relay = fleet.start()
    assert relay.wait() == 1
    assert f"row-level security is on for table {table} of schema 'outbox'" in relay.log


def test_unpublished_rows_that_are_hidden_from_the_owner_do_not_go(
    crew: Crew, topic: MakeTopic
) -> None:
    # Like a relay that was active before: it has looked at the tables already.
    with connect(crew.relay, purpose="test") as conn:
        put(crew.writer, event(topic(1), 0))
        conn.execute("SELECT outbox.confirm('shop', '1:1:', NULL, 0)")
        alter(crew, "events_0", "FORCE")
        alter(crew, "events_0", "ENABLE")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            conn.execute("SELECT outbox.truncate_leaf(0, '0 s')")
    with psycopg.connect(crew.admin) as conn:
        assert conn.execute("SELECT count(*) FROM outbox.events").fetchone() == (1,)


def test_what_a_producer_asks_after_is_not_drained_because_it_is_hidden(crew: Crew) -> None:
    fallback = Fallback(crew.writer, "outbox", Limits())
    try:
        lane = b"\0" * 32
        assert fallback.drained({lane: fallback.token()}) == []
        alter(crew, "parked", "ENABLE")
        alter(crew, "parked", "FORCE")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            fallback.drained({lane: 1})
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            fallback.parked(1)
    finally:
        fallback.close()
    order = Event(topic="orders", key="k", type="T")
    with (
        psycopg.connect(crew.writer) as conn,
        pytest.raises(NotAllowed, match=_DISABLE.partition("`")[0]),
    ):
        outbox.published(conn, order, timeout=1)


def test_a_writer_is_told_of_a_policy_and_not_of_a_right_that_it_has(crew: Crew) -> None:
    alter(crew, "events_0", "ENABLE")
    alter(crew, "events_0", "FORCE")
    with pytest.raises(NotAllowed, match=_DISABLE.partition("`")[0]):
        put(crew.writer, Event(topic="orders", type="T"))


def test_an_inbox_and_subscriptions_are_not_used_whose_rows_are_hidden(crew: Crew) -> None:
    parts = ((inbox_schema, "held"), (inbox_schema, "claims"), (push_schema, "subscriptions"))
    for module, table in parts:
        name = f"{module.DEFAULT_SCHEMA}_{table}"
        with psycopg.connect(crew.owner) as conn:
            module.install(conn, name)
            module.require(conn, name)
            for what in ("ENABLE", "FORCE"):
                conn.execute(f"ALTER TABLE {name}.{table} {what} ROW LEVEL SECURITY".encode())
            for ask in (module.require, module.install):
                with pytest.raises(NotAllowed, match=f"is on for table {table}"):
                    ask(conn, name)
