"""A password that is replaced in its file is used by the next connection."""

from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dovecote.devstack import Stack
from outbox import schema
from outbox.schema import Roles
from outbox.schema.capture import let_relays_read
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import (
    RelayProcess,
    Relays,
    commit,
    event,
    installed,
    published,
    settings,
)


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_relay_goes_on_with_the_new_password(
    database: str, stack: Stack, tmp_path: Path, topic: MakeTopic, capture: str
) -> None:
    name, role, secret = topic(1), f"rotated_{uuid4().hex[:12]}", tmp_path / "password"
    secret.write_text("one")
    given = conninfo_to_dict(database)
    fleet = Relays(tmp_path, installed(database, capture), stack.kafka.bootstrap)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'one'".encode())
        schema.install(conn, roles=Roles(relays=[role]))
        let_relays_read(conn, "outbox")
        place = "".join(f'{key} = "{given[key]}"\n' for key in ("host", "port", "dbname"))
        toml = settings(fleet.bootstrap, name=fleet.name)
        toml += f'[dsn]\n{place}user = "{role}"\npassword = {{ file = "{secret}" }}\n'
        relay = RelayProcess(tmp_path / "rotated", toml, {})
        try:
            relay.until_logged("publishing from")
            commit(database, event(name, 0))
            published(fleet, name, 1)
            conn.execute(f"ALTER ROLE {role} PASSWORD 'two'".encode())
            secret.write_text("two")
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [role]
            )
            commit(database, event(name, 1))
            published(fleet, name, 2)
            assert relay.terminate() == 0
        finally:
            relay.end()
            conn.execute(f"DROP OWNED BY {role}".encode())
            conn.execute(f"DROP ROLE {role}".encode())
