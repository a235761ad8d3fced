"""Each role can do what its duty needs, and nothing else."""

import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.devstack import Stack
from outbox import DovecoteError, Event, schema, write
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.health import Health
from relay.metrics import Metrics
from relay.operating.status import status
from relay.settings import RelaySettings
from relay.standby import Standby
from tests import old_schemas
from tests.support.commands import init
from tests.support.crews import Crew, rights
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import event, published, relays
from tests.support.waiting import until

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
    ("hold", "EXECUTE"),
    ("let_go", "EXECUTE"),
    ("holding", "EXECUTE"),
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


def commit(dsn: str, *events: Event) -> None:
    """Write events in one transaction, as a writer that can do nothing else."""
    with psycopg.connect(dsn) as conn:
        write(conn, *events)


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

        def is_done() -> bool:
            seen = status(settings(crew, stack, fleet.name))
            return seen.lag_rows == 0 and seen.active is not None

        until(is_done, within=10, what="a relay that has nothing left")
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
    "topic",
    [
        "dovecote.progress.shop",
        "dovecote.markers.job",
        "dovecote.push.slack.requeued",
        "dovecote.skips",
        "__transaction_state",
    ],
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
