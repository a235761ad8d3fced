"""A schema that holds what others use: nothing of theirs is taken, changed or taken for ours."""

from typing import Any

import psycopg
import pytest

from dedup.inbox import schema as inbox_schema
from dovecote.push.store import schema as push_schema
from outbox import BadSettings, Event, SchemaMissing, schema, write
from outbox.schema import steps
from outbox.schema.migrations import Migrations
from tests import old_schemas
from tests.support.crews import new_role

PARTS: dict[str, Any] = {"outbox": schema, "inbox": inbox_schema, "push": push_schema}
NEWEST = schema.migrations()[-1].version

# Tables of versions that other tools have made.
SAME_COLUMNS = (
    "CREATE TABLE shop.migrations (version int PRIMARY KEY, name text, applied_at timestamptz"
    " DEFAULT now()); INSERT INTO shop.migrations VALUES (20240101, 'init')"
)
OTHER_COLUMNS = (
    "CREATE TABLE shop.migrations (id int, migration text, batch int);"
    "INSERT INTO shop.migrations VALUES (1, 'init', 1)"
)
IN_WORDS = (
    "CREATE TABLE shop.migrations (version text, name text);"
    "INSERT INTO shop.migrations VALUES ('2024-01-01', 'events'), ('1', 'first')"
)
EMPTY = "CREATE TABLE shop.migrations (version int, name text)"


def run(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        done = conn.execute(query.encode())
        while done.nextset():
            pass
        return done.fetchall() if done.description else []


def relations(dsn: str, name: str) -> set[str]:
    query = (
        "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        " AND relkind IN ('r', 'p', 'S', 'v')"
    )
    with psycopg.connect(dsn) as conn:
        return {row[0] for row in conn.execute(query, [name]).fetchall()}


def _missing(part: str) -> str:
    return "the tables of push .* are not installed" if part == "push" else "is not installed"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("ledger", [SAME_COLUMNS, OTHER_COLUMNS, IN_WORDS, EMPTY])
def test_a_schema_with_another_tools_table_of_versions_is_refused(
    database: str, part: str, ledger: str
) -> None:
    run(database, f"CREATE SCHEMA shop; {ledger}")
    before = run(database, "SELECT to_jsonb(m) FROM shop.migrations AS m")
    with psycopg.connect(database, autocommit=True) as conn:
        with pytest.raises(SchemaMissing, match=_missing(part)):
            PARTS[part].require(conn, "shop")
        with pytest.raises(BadSettings, match=r"holds what others use \(table shop\.migrations"):
            PARTS[part].install(conn, "shop")
        scripts = [PARTS[part].script("shop")]
        if part == "outbox":
            scripts.append(steps.install(NEWEST, "shop"))
        for script in scripts:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as it:
                conn.execute(script.encode())
            assert "holds what others use (table shop.migrations" in str(it.value)
    assert run(database, "SELECT to_jsonb(m) FROM shop.migrations AS m") == before
    assert relations(database, "shop") == {"migrations"}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("autocommit", [False, True])
def test_no_printed_script_calls_a_function_that_others_have_put_on_the_path(
    database: str, part: str, *, autocommit: bool
) -> None:
    with psycopg.connect(database, autocommit=autocommit) as conn:
        conn.execute(
            "CREATE SCHEMA others; SET search_path = others, public;"
            " CREATE FUNCTION others.format(text, text) RETURNS text LANGUAGE plpgsql"
            " AS 'BEGIN RAISE EXCEPTION ''called with the rights of another''; END'"
        )
        conn.execute(PARTS[part].script().encode())
        # The session goes on with the path that it had.
        assert conn.execute("SHOW search_path").fetchone() == ("others, public",)
        PARTS[part].require(conn)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_ours_is_not_installed_into_the_schema_of_another(
    database: str, part: str
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for other in PARTS.keys() - {part}:
            PARTS[other].install(conn, other)
            with pytest.raises(SchemaMissing, match=_missing(part)):
                PARTS[part].require(conn, other)
            with pytest.raises(BadSettings, match="holds what others use"):
                PARTS[part].install(conn, other)
            PARTS[other].require(conn, other)


@pytest.mark.parametrize("part", PARTS)
def test_a_schema_that_is_open_to_public_is_refused_even_if_it_is_empty(
    database: str, part: str
) -> None:
    usage = "SELECT has_schema_privilege('pg_monitor', 'public', 'USAGE')"
    with psycopg.connect(database, autocommit=True) as conn:
        with pytest.raises(BadSettings, match=r"holds what others use \(rights of PUBLIC\)"):
            PARTS[part].install(conn, "public")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="rights of PUBLIC"):
            conn.execute(PARTS[part].script("public").encode())
    assert run(database, usage) == [(True,)]


@pytest.mark.parametrize("part", PARTS)
def test_public_gets_nothing_of_ours_whatever_default_privileges_say(
    database: str, part: str
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for kind in ("TABLES", "SEQUENCES", "FUNCTIONS", "SCHEMAS"):
            conn.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO PUBLIC".encode())
        PARTS[part].install(conn, "shop")
        open_to_public = conn.execute(
            "SELECT nspname::text FROM pg_namespace, aclexplode(nspacl) AS acl"
            " WHERE nspname = 'shop' AND acl.grantee = 0"
            " UNION SELECT relname FROM pg_class, aclexplode(relacl) AS acl"
            " WHERE relnamespace = 'shop'::regnamespace AND acl.grantee = 0"
            " UNION SELECT proname FROM pg_proc, aclexplode(proacl) AS acl"
            " WHERE pronamespace = 'shop'::regnamespace AND acl.grantee = 0"
        ).fetchall()
    assert open_to_public == []


def test_what_others_made_in_the_schema_later_is_theirs_in_every_upgrade(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn, new_role(database) as (role, _):
        conn.execute(old_schemas.script(old_schemas.OUTBOX, "shop").encode())
        put_beside(conn)
        conn.execute(
            "ALTER TABLE shop.invoices ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        )
        schema.install(conn, "shop", roles=schema.Roles(writers=[role], relays=[role]))
        schema.require(conn, "shop")
        rights = conn.execute(
            "SELECT has_table_privilege('pg_monitor', 'shop.invoices', 'SELECT'),"
            " has_function_privilege('pg_monitor', 'shop.append(jsonb)', 'EXECUTE'),"
            " has_function_privilege(%s, 'shop.append(jsonb)', 'EXECUTE')",
            [role],
        ).fetchone()
        assert rights == (True, True, True)
        conn.execute("REVOKE EXECUTE ON FUNCTION shop.append(jsonb) FROM PUBLIC")
        with conn.transaction():
            conn.execute(f"SET LOCAL ROLE {role}".encode())
            write(conn, Event(topic="t", type="T"), schema="shop")
        conn.execute(f"DROP OWNED BY {role}".encode())


def put_beside(conn: psycopg.Connection) -> None:
    """Make what a service might have in the schema of its outbox."""
    conn.execute(
        "CREATE TABLE shop.invoices (id int); INSERT INTO shop.invoices VALUES (1);"
        "GRANT SELECT ON shop.invoices TO PUBLIC;"
        "CREATE TABLE shop.my_events () INHERITS (shop.events);"
        "CREATE FUNCTION shop.append(jsonb) RETURNS int LANGUAGE sql AS 'SELECT 1'"
    )


@pytest.mark.parametrize("version", [1, 3, 8, old_schemas.OUTBOX, NEWEST])
def test_uninstalling_takes_everything_of_ours_from_every_version(
    database: str, version: int
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        if version == NEWEST:
            schema.install(conn, "shop")
        else:
            conn.execute(old_schemas.script(version, "shop").encode())
        conn.execute(steps.uninstall("shop").encode())
        assert conn.execute("SELECT to_regnamespace('shop')").fetchone() == (None,)
        # Once more changes nothing.
        conn.execute(steps.uninstall("shop").encode())


def test_uninstalling_leaves_what_others_have_put_beside_the_outbox(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        schema.install(conn, "shop")
        put_beside(conn)
        conn.execute("ALTER TABLE shop.my_events NO INHERIT shop.events")
        conn.execute(steps.uninstall("shop").encode())
        left = conn.execute("SELECT shop.append('{}'::jsonb), id FROM shop.invoices").fetchall()
        assert left == [(1, 1)]
        functions = conn.execute(
            "SELECT count(*) FROM pg_proc WHERE pronamespace = 'shop'::regnamespace"
        ).fetchone()
        assert functions == (1,)
    assert relations(database, "shop") == {"invoices", "my_events"}


VIEW = "CREATE VIEW reports.waiting AS SELECT topic FROM shop.events"
HEIR = "CREATE TABLE reports.events () INHERITS (shop.events)"
CALL = "CREATE VIEW reports.size AS SELECT shop.max_event_bytes() AS most"


@pytest.mark.parametrize(("made", "named"), [(VIEW, "waiting"), (HEIR, "events"), (CALL, "size")])
def test_uninstalling_is_refused_while_objects_of_others_need_the_outbox(
    database: str, made: str, named: str
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        schema.install(conn, "shop")
        conn.execute(f"CREATE SCHEMA reports; {made}".encode())
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
            conn.execute(steps.uninstall("shop").encode())
        assert 'objects that need "shop"; nothing was dropped' in str(refused.value)
        assert f"reports.{named}" in str(refused.value.diag.message_detail)
        assert "CASCADE" not in str(refused.value.diag.message_hint)
        schema.require(conn, "shop")
    assert relations(database, "reports") == {named}


@pytest.mark.parametrize("ledger", [SAME_COLUMNS, OTHER_COLUMNS, "SELECT"])
def test_uninstalling_where_no_outbox_is_drops_nothing(database: str, ledger: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.events (id int); {ledger}".encode())
        before = relations(database, "shop")
        conn.execute(steps.uninstall("shop").encode())
    assert relations(database, "shop") == before


def test_uninstalling_what_was_restored_without_its_data_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        schema.install(conn, "shop")
        conn.execute("TRUNCATE shop.migrations")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="without its data"):
            conn.execute(steps.uninstall("shop").encode())
    assert "events" in relations(database, "shop")


def test_every_function_and_table_of_a_new_installation_is_known_as_ours(database: str) -> None:
    known = [
        Migrations("outbox.schema", "outbox", "outbox", "outbox"),
        Migrations("dedup.inbox", "inbox", "inbox", "inbox"),
        Migrations("dovecote.push", "subscriptions", "push", "push"),
    ]
    for part in known:
        with psycopg.connect(database) as conn:
            part.install(conn, part.default)
            ours = part.belongings()
            functions = conn.execute(
                "SELECT proname || '(' || oidvectortypes(proargtypes) || ')' FROM pg_proc"
                " WHERE pronamespace = to_regnamespace(%s)",
                [part.default],
            ).fetchall()
        assert {row[0] for row in functions} <= set(ours.functions)
        leaves = {f"{table}_{number}" for table in ours.tables for number in range(8)}
        named = {*ours.tables, *ours.sequences, *leaves}
        columns = {name for name in relations(database, part.default) if name.endswith("_seq")}
        assert relations(database, part.default) - columns <= named
