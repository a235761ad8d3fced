"""Each role can do what its duty needs, and nothing else."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.devstack import Stack
from outbox import DovecoteError, Event, NotAllowed, schema, write, write_async
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.health import Health
from relay.metrics import Metrics
from relay.operating.status import status
from relay.settings import RelaySettings
from relay.standby import Standby
from tests import old_schemas
from tests.support.commands import init
from tests.support.fix_stack import MakeTopic, new_database
from tests.support.relaying import event, published, relays

RELAY_RIGHTS = {
    ("events", "SELECT"),
    ("migrations", "SELECT"),
    ("claims", "SELECT"),
    ("identity", "SELECT"),
    ("renew_claim", "EXECUTE"),
    ("begin_claim", "EXECUTE"),
    ("reading", "SELECT"),
    ("parked", "SELECT"),
    ("parked", "INSERT"),
    ("parked", "UPDATE"),
    ("parked", "DELETE"),
    ("parked_commands", "SELECT"),
    ("parked_commands", "INSERT"),
    ("parked_commands", "DELETE"),
    ("settle_shards", "EXECUTE"),
}
# Without these it publishes all the same; see test_retention.py. `dovecote relay doctor` needs
# them, and reports less without them.
LOOK = ("relays", "SELECT")
ROOM_RIGHTS = {
    (function, "EXECUTE")
    for function in ("confirm", "confirm_drained", "leaves", "write_to_leaf", "truncate_leaf")
}
WRITER_RIGHTS = {
    (function, "EXECUTE") for function in ("append", "append_many", "drained", "parked_lanes")
}
ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


class Crew(NamedTuple):
    """A database, and connection strings to it: as its owner and as each role."""

    owner: str
    writer: str
    relay: str
    stranger: str

    def role(self, duty: str) -> str:
        return str(psycopg.conninfo.conninfo_to_dict(getattr(self, duty))["user"])


def commit(dsn: str, *events: Event) -> None:
    """Write events in one transaction, as a writer that can do nothing else."""
    with psycopg.connect(dsn) as conn:
        write(conn, *events)


@pytest.fixture
def bare(stack: Stack) -> Iterator[Crew]:
    """Roles of this test, in a database without an outbox."""
    prefix = f"crew_{uuid4().hex[:12]}"
    names = [f"{prefix}_{duty}" for duty in ("writer", "relay", "stranger")]
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        try:
            with new_database(stack) as dsn:
                yield Crew(dsn, *[make_conninfo(dsn, user=name, password="x") for name in names])  # noqa: S106  # of this test's roles
        finally:
            for name in names:
                admin.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def crew(bare: Crew) -> Crew:
    """Roles of this test, which `dovecote init outbox` has given the rights that they need."""
    done = init(
        *("--dsn", bare.owner, "--writer-role", bare.role("writer")),
        *("--relay-role", bare.role("relay")),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"granted {bare.role('writer')} what a writer needs" in done.stdout
    return bare


def test_nobody_runs_a_function_that_the_writer_has_put_in_the_way(
    bare: Crew, stack: Stack, tmp_path: Path, topic: MakeTopic
) -> None:
    with psycopg.connect(bare.owner, autocommit=True) as conn:
        # As every role may before Postgres 15.
        conn.execute(
            "GRANT CREATE ON SCHEMA public TO PUBLIC; CREATE TABLE public.caught (who text)"
        )
        conn.execute("GRANT INSERT ON public.caught TO PUBLIC")
    with psycopg.connect(bare.writer, autocommit=True) as conn:
        for arguments in ("text, oid, oid", "text, text"):
            conn.execute(
                sql.SQL(
                    "CREATE FUNCTION public.format({}) RETURNS text LANGUAGE sql AS 'INSERT INTO"
                    " public.caught VALUES (current_user); SELECT ''x''::text'"
                ).format(sql.SQL(arguments))
            )
    roles = ("--writer-role", bare.role("writer"), "--relay-role", bare.role("relay"))
    assert init("--dsn", bare.owner, *roles).returncode == 0
    with psycopg.connect(bare.owner, autocommit=True) as conn:
        relay = sql.Identifier(bare.role("relay"))
        conn.execute(sql.SQL("ALTER ROLE {} REPLICATION").format(relay))
    assert init("--dsn", bare.owner, "--capture", "wal").returncode == 0
    name = topic(1)
    with relays(tmp_path, bare.relay, stack.kafka.bootstrap) as fleet:
        fleet.active()
        commit(bare.writer, event(name, 0))
        published(fleet, name, 1)
    assert init("--dsn", bare.owner, "--capture", "table").returncode == 0
    with psycopg.connect(bare.owner) as conn:
        assert conn.execute("SELECT who FROM public.caught").fetchall() == []
        # It would have been found, because this session looks there.
        conn.execute("SELECT format('%s', 1::oid, 2::oid)")
        assert len(conn.execute("SELECT who FROM public.caught").fetchall()) == 1


@pytest.mark.parametrize("duty", ["relay", "writer", "stranger"])
@pytest.mark.parametrize("use", [use_wal, use_table])
def test_who_may_not_switch_the_capture_is_told_who_may(
    crew: Crew, duty: str, use: Callable[[str, str], object]
) -> None:
    owner = str(psycopg.conninfo.conninfo_to_dict(crew.owner)["user"])
    with pytest.raises(DovecoteError) as refused:
        use(getattr(crew, duty), "outbox")
    said, _, who = str(refused.value).partition("; ")
    assert said.startswith(("permission denied for ", "must be owner of "))
    assert who == f"run it as {owner}, to whom the outbox belongs"


def test_an_owner_who_lacks_a_right_is_told_which(bare: Crew) -> None:
    """Publishing a table needs a right on the database, too."""
    role = bare.role("stranger")
    database = psycopg.conninfo.conninfo_to_dict(bare.owner)["dbname"]
    with psycopg.connect(bare.owner, autocommit=True) as conn:
        conn.execute(f"GRANT CREATE ON DATABASE {database} TO {role}".encode())
        with psycopg.connect(bare.stranger) as owning:
            schema.install(owning)
        conn.execute(f"REVOKE CREATE ON DATABASE {database} FROM {role}".encode())
    with pytest.raises(DovecoteError, match=f"permission denied for database .*to role {role},"):
        use_wal(bare.stranger, "outbox")


def test_the_command_ends_with_that_and_no_traceback(crew: Crew) -> None:
    result = CliRunner().invoke(app, ["init", "outbox", "--dsn", crew.relay, "--capture", "wal"])
    assert isinstance(result.exception, DovecoteError)
    assert "to whom the outbox belongs" in str(result.exception)


def rights(crew: Crew, duty: str) -> set[tuple[str, str]]:
    """Return everything that a role can do in the schema, according to the server."""
    with psycopg.connect(crew.owner) as conn:
        parameters = {"role": crew.role(duty), "rights": list(ON_TABLES)}
        return set(
            conn.execute(
                "SELECT relname, kind FROM pg_class, unnest(%(rights)s::text[]) AS kind"
                " WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
                " AND has_table_privilege(%(role)s, oid, kind)"
                " UNION ALL SELECT relname, kind FROM pg_class,"
                " unnest('{SELECT,USAGE,UPDATE}'::text[]) AS kind"
                " WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'S'"
                " AND has_sequence_privilege(%(role)s, oid, kind)"
                " UNION ALL SELECT proname, 'EXECUTE' FROM pg_proc"
                " WHERE pronamespace = 'outbox'::regnamespace"
                " AND has_function_privilege(%(role)s, oid, 'EXECUTE')"
                " UNION ALL SELECT 'outbox', kind FROM unnest('{USAGE,CREATE}'::text[]) AS kind"
                " WHERE has_schema_privilege(%(role)s, 'outbox', kind)",
                parameters,
            ).fetchall()
        )


def test_each_role_has_the_rights_of_its_duty_and_no_other(crew: Crew) -> None:
    usage = ("outbox", "USAGE")
    assert rights(crew, "writer") == {usage, *WRITER_RIGHTS}
    assert rights(crew, "relay") == {usage, *RELAY_RIGHTS, *ROOM_RIGHTS, LOOK}
    assert rights(crew, "stranger") == set()


def test_an_upgrade_lets_writers_ask_what_is_published_and_relays_say_so(bare: Crew) -> None:
    writer, relay = bare.role("writer"), bare.role("relay")
    with psycopg.connect(bare.owner) as conn:
        conn.execute(old_schemas.script(6).encode())
        conn.execute(f"GRANT EXECUTE ON FUNCTION outbox.append TO {writer}".encode())
        conn.execute(f"GRANT EXECUTE ON FUNCTION outbox.confirm TO {relay}".encode())
        assert schema.install(conn)[0].version == 7
    asks = {("drained", "EXECUTE"), ("parked_lanes", "EXECUTE")}
    assert rights(bare, "writer") == {("append", "EXECUTE"), *asks}
    assert rights(bare, "relay") == {
        ("confirm", "EXECUTE"),
        ("confirm_drained", "EXECUTE"),
        ("relays", "SELECT"),
    }


def test_a_service_and_a_relay_do_their_work_under_their_roles(
    crew: Crew, stack: Stack, tmp_path: Path, topic: MakeTopic
) -> None:
    name = topic(2)
    with relays(tmp_path, crew.owner, stack.kafka.bootstrap) as fleet:
        commit(crew.writer, event(name, 1))
        relay = fleet.active(dsn=crew.relay)
        commit(crew.writer, event(name, 2), event(name, 3, headers=[("h", "x")]))
        assert len(published(fleet, name, 3)) == 3
        seen = status(settings(crew, stack, fleet.name))
        assert (seen.lag_rows, seen.active is not None) == (0, True)
        assert relay.terminate() == 0
        assert fleet.active(dsn=crew.relay).terminate() == 0


def settings(crew: Crew, stack: Stack, name: str) -> RelaySettings:
    """Return the settings of a relay under its role, whose password is kept elsewhere."""
    parameters = psycopg.conninfo.conninfo_to_dict(crew.relay)
    return RelaySettings.model_validate(
        {
            "name": name,
            "dsn": {**parameters, "password": {"env": "RELAY_PASSWORD"}},
            "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
        },
        context={"environ": {"RELAY_PASSWORD": "x"}},
    )


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM outbox.events",
        "SELECT xmin FROM outbox.migrations",
        "SELECT FROM outbox.claims",
        "SELECT FROM outbox.capture",
        "SELECT outbox.writes_to_wal()",
        "UPDATE outbox.events SET topic = 'other'",
        "DELETE FROM outbox.events",
        "TRUNCATE outbox.events",
        "INSERT INTO outbox.events (topic) VALUES ('t')",
        "INSERT INTO outbox.events (position, xid) OVERRIDING SYSTEM VALUE VALUES (1, '1')",
        "COPY outbox.events FROM STDIN",
        "LOCK outbox.events IN ACCESS SHARE MODE",
        "SELECT nextval('outbox.events_position_seq')",
        "SELECT setval('outbox.events_position_seq', 1)",
        "SELECT last_value FROM outbox.events_position_seq",
        "SELECT outbox.require_publishable('t', 'T', 's', now())",
        "SELECT outbox.require_headers(NULL, NULL)",
        "CREATE TABLE outbox.mine (n int)",
        "CREATE FUNCTION outbox.append(text) RETURNS void LANGUAGE sql AS ''",
        "ALTER TABLE outbox.events DISABLE TRIGGER ALL",
        "DROP FUNCTION outbox.append",
        "INSERT INTO outbox.claims (name, system_identifier, database) VALUES ('shop', '1', 1)",
        "SELECT FROM outbox.parked",
        "DELETE FROM outbox.parked",
        "INSERT INTO outbox.parked_commands (name, action, ticket, up_to) VALUES ('', '', 1, 1)",
    ],
)
def test_a_writer_cannot_read_change_or_go_round_the_entry_point(
    crew: Crew, statement: str
) -> None:
    commit(crew.writer, event("orders", 1))
    with psycopg.connect(crew.writer) as conn, pytest.raises(errors.InsufficientPrivilege):
        conn.execute(statement.encode())


@pytest.mark.parametrize(
    "topic", ["dovecote.progress.shop", "dovecote.markers.job", "__transaction_state"]
)
def test_a_writer_cannot_write_to_topics_that_remember(crew: Crew, topic: str) -> None:
    with psycopg.connect(crew.writer) as conn:
        one = "SELECT outbox.append(%s, NULL, NULL, 'T')"
        many = (
            "SELECT outbox.append_many(ARRAY[%s], '{NULL}', '{NULL}', '{T}',"
            " ARRAY[gen_random_uuid()], '{s}', '{NULL}', ARRAY[now()], '{NULL}')"
        )
        for call in (one, many):
            with pytest.raises(errors.CheckViolation, match="own"), conn.transaction():
                conn.execute(call.encode(), [topic])


def test_a_writers_own_objects_do_not_stand_in_for_the_servers(crew: Crew) -> None:
    with psycopg.connect(crew.writer) as conn:
        conn.execute(
            "CREATE FUNCTION pg_temp.starts_with(text, text) RETURNS boolean"
            " LANGUAGE sql AS 'SELECT false'"
        )
        conn.execute("CREATE TEMP TABLE events (LIKE pg_class)")
        conn.execute("SET search_path = pg_temp, pg_catalog")
        with pytest.raises(errors.CheckViolation), conn.transaction():
            conn.execute("SELECT outbox.append('dovecote.progress.shop', NULL, NULL, 'T')")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE outbox.events SET topic = 'other'",
        "DELETE FROM outbox.events",
        "DROP TABLE outbox.events",
        "SELECT outbox.append('t', NULL, NULL, 'T')",
        "SELECT setval('outbox.events_position_seq', 1)",
        "DELETE FROM outbox.claims",
        "UPDATE outbox.claims SET nonce = NULL",
        "UPDATE outbox.identity SET id = gen_random_uuid()",
        "DELETE FROM outbox.migrations",
        "CREATE TABLE outbox.mine (n int)",
    ],
)
def test_a_relay_can_change_nothing_that_it_relays(crew: Crew, statement: str) -> None:
    with psycopg.connect(crew.relay) as conn, pytest.raises(errors.InsufficientPrivilege):
        conn.execute(statement.encode())


def test_a_relay_needs_each_right_that_it_has_and_says_what_grants_it(
    crew: Crew, stack: Stack, topic: MakeTopic
) -> None:
    progress = topic(1, cleanup_policy="compact")
    role = crew.role("relay")
    wanted = f"run `dovecote init outbox --relay-role {role}` as its owner"
    with psycopg.connect(crew.owner, autocommit=True) as owner:
        for table, right in sorted(RELAY_RIGHTS):
            kind = "FUNCTION" if right == "EXECUTE" else "TABLE"
            owner.execute(f"REVOKE {right} ON {kind} outbox.{table} FROM {role}".encode())
            with_topic = settings(crew, stack, f"{table}-{right}".lower()).model_copy(
                update={"progress_topic": progress}
            )
            relay = Standby(with_topic, health=Health(), metrics=[Metrics("x")])
            with pytest.raises(Refused, match=wanted):
                relay.run(threading.Event())
            schema.install(owner, roles=schema.Roles(relays=[role]))
    assert rights(crew, "relay") == {("outbox", "USAGE"), *RELAY_RIGHTS, *ROOM_RIGHTS, LOOK}


def test_a_stranger_is_told_which_command_lets_it_write(crew: Crew) -> None:
    wanted = f"run `dovecote init outbox --writer-role {crew.role('stranger')}` as its owner"
    with psycopg.connect(crew.stranger) as conn:
        for events in ([Event(topic="t", type="T")], [Event(topic="t", type="T")] * 2):
            with pytest.raises(NotAllowed, match=wanted):
                write(conn, *events)
            conn.rollback()
    asyncio.run(refused_async(crew, wanted))


async def refused_async(crew: Crew, wanted: str) -> None:
    async with await psycopg.AsyncConnection.connect(crew.stranger) as conn:
        with pytest.raises(NotAllowed, match=wanted):
            await write_async(conn, Event(topic="t", type="T"))


def test_the_command_that_is_named_names_the_schema() -> None:
    assert schema.advice("writer", "shop", "outbox").startswith(
        "run `dovecote init outbox --writer-role shop` "
    )
    assert "--relay-role 'two words' --schema 'my box'`" in schema.advice(
        "relay", "two words", "my box"
    )


def test_granting_twice_and_by_printed_sql_gives_the_same(crew: Crew) -> None:
    arguments = ("--writer-role", crew.role("writer"), "--relay-role", crew.role("relay"))
    before = access(crew.owner)
    assert init("--dsn", crew.owner, *arguments).returncode == 0
    assert access(crew.owner) == before
    newest = str(schema.migrations()[-1].version)
    printed = init("--print-sql", "--since", newest, *arguments).stdout
    with psycopg.connect(crew.owner) as conn:
        role = crew.role("relay")
        conn.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA outbox FROM {role}".encode())
        conn.execute(printed.encode())
    assert access(crew.owner) == before


def access(dsn: str) -> list[Any]:
    """Return the access control list of every object in the schema."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "SELECT relname, relacl::text FROM pg_class"
            " WHERE relnamespace = 'outbox'::regnamespace"
            " UNION ALL SELECT oid::regprocedure::text, proacl::text FROM pg_proc"
            " WHERE pronamespace = 'outbox'::regnamespace"
            " UNION ALL SELECT nspname, nspacl::text FROM pg_namespace WHERE nspname = 'outbox'"
            " ORDER BY 1, 2"
        ).fetchall()


@pytest.mark.parametrize("name", ["outbox", 'o\'x "quoted"'])
def test_an_upgrade_lets_those_write_on_who_could_and_nobody_else(bare: Crew, name: str) -> None:
    named = sql.Identifier(name).as_string()
    with psycopg.connect(bare.owner, autocommit=True) as owner:
        owner.execute(old_schemas.script(1, name).encode())
        owner.execute(f"GRANT USAGE ON SCHEMA {named} TO {bare.role('writer')}".encode())
        assert schema.version(owner, name) == 1
        schema.install(owner, name)
        owner.execute(f"GRANT USAGE ON SCHEMA {named} TO {bare.role('stranger')}".encode())
    for events in ([Event(topic="t", type="T")], [Event(topic="t", type="T")] * 2):
        with psycopg.connect(bare.writer) as conn:
            write(conn, *events, schema=name)
        with psycopg.connect(bare.stranger) as conn, pytest.raises(NotAllowed):
            write(conn, *events, schema=name)


def test_default_privileges_open_nothing(bare: Crew) -> None:
    with psycopg.connect(bare.owner, autocommit=True) as owner:
        owner.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")
        schema.install(owner)
        owner.execute(f"GRANT USAGE ON SCHEMA outbox TO {bare.role('stranger')}".encode())
    assert rights(bare, "stranger") == {("outbox", "USAGE")}


def test_a_role_that_is_not_there_is_named(bare: Crew) -> None:
    missing = init("--dsn", bare.owner, "--writer-role", "no such role")
    assert missing.returncode == 2
    assert 'role "no such role" does not exist; create it first' in missing.stderr
    with psycopg.connect(bare.owner) as conn:
        assert schema.version(conn) == 0, "all or nothing"


def test_only_the_owner_grants_and_the_others_are_told_who_that_is(crew: Crew) -> None:
    with psycopg.connect(crew.owner) as conn:
        (owner,) = conn.execute("SELECT current_user::text").fetchone() or ("",)
    # Postgres would warn that nothing was granted, and go on.
    refused = init("--dsn", crew.relay, "--writer-role", crew.role("stranger"))
    assert refused.returncode == 1
    assert f"belongs to role {owner}" in refused.stderr
    assert rights(crew, "stranger") == set()
