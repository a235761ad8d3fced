"""A server that reports nothing of its write-ahead log can still be read from the table."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dovecote.devstack import Stack
from outbox import Event, schema, write
from outbox.schema import Roles
from tests.support.commands import doctor
from tests.support.crews import new_role
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import event, published, relays

_FUNCTIONS = (
    "pg_current_wal_lsn()",
    "pg_current_wal_flush_lsn()",
    "pg_current_wal_insert_lsn()",
    "pg_walfile_name(pg_lsn)",
    "pg_last_wal_receive_lsn()",
    "pg_last_wal_replay_lsn()",
)

_SAYS = "the server does not say where its write-ahead log ends"


def deny(dsn: str, how: str) -> None:
    """Remove the functions of the log, like a managed server."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for each in _FUNCTIONS:
            if how == "forbidden":
                conn.execute(f"REVOKE EXECUTE ON FUNCTION {each} FROM PUBLIC".encode())
                continue
            conn.execute("SET allow_system_table_mods = on")
            kind = "text" if "walfile" in each else "pg_lsn"
            # A built-in function is found by its number, whatever happens to its text.
            aside = f"{each.partition('(')[0]}_there"
            conn.execute(f"ALTER FUNCTION pg_catalog.{each} RENAME TO {aside}".encode())
            conn.execute(
                f"CREATE FUNCTION pg_catalog.{each} RETURNS {kind} LANGUAGE plpgsql"
                " AS $$BEGIN RAISE feature_not_supported; END$$".encode()
            )


@pytest.fixture(params=["forbidden", "unsupported"])
def managed(request: pytest.FixtureRequest, database: str) -> Iterator[tuple[str, str, str]]:
    """Yield a database for its owner and for a relay, and how its log is kept from the relay."""
    with new_role(database) as (role, own):
        with psycopg.connect(database) as conn:
            schema.install(conn, roles=Roles(relays=[role]))
        yield database, own, request.param


def put(dsn: str, *events: Event) -> None:
    with psycopg.connect(dsn) as conn:
        write(conn, *events)


def test_the_table_is_read_of_a_server_that_says_nothing_of_its_log(
    managed: tuple[str, str, str], stack: Stack, tmp_path: Path, topic: MakeTopic
) -> None:
    owner, dsn, how = managed
    name = topic(1)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        told = fleet.active()
        put(owner, event(name, 0))
        published(fleet, name, 1)
        assert _SAYS not in told.log
        assert told.terminate() == 0
        # Earlier reports are not needed to go on.
        deny(owner, how)
        relay = fleet.active(park_after="1s")
        put(owner, *[event(name, number) for number in range(1, 2_000)])
        put(owner, event("no.such.topic", 0, key="parked"), event(name, 2_000))
        published(fleet, name, 2_001)
        relay.until_logged("parked")
        assert relay.log.count(_SAYS) == 1
        assert "Traceback" not in relay.log
        found = doctor(fleet)
        assert f"warn  {_SAYS}" in found.stdout
        assert "grant the relay's role EXECUTE on pg_current_wal_lsn" in found.stdout
        assert "fail  " not in found.stdout
        assert relay.terminate() == 0
        fleet.active()
        put(owner, event(name, 2_001))
        published(fleet, name, 2_002)
