"""An upgrade from any earlier version gives what a new installation gives."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dedup.inbox import schema as inbox_schema
from dovecote.push.store import schema as push_schema
from outbox import Event, schema, write
from outbox.schema import capture, steps
from outbox.schema.migrations import Migrations
from outbox.schema.templates import fill
from tests import old_schemas
from tests.support.fix_stack import Servers, new_database

OUTBOX = Migrations("outbox.schema", "outbox", "outbox", "outbox")
INBOX = Migrations("dedup.inbox", "inbox", "inbox", "inbox")
PUSH = push_schema._PUSH
NEWEST = schema.migrations()[-1].version

SETTINGS = {
    "outbox": {"writes_to_wal", "max_event_bytes", "restricts_topics"},
    "inbox": {"claims_setting"},
}
"""Functions that hold what an operator or a step has set, which upgrades leave as they are."""

# Every kind of thing that belongs to a schema, in words that hold no oid.
CATALOGUE = """
WITH here AS (SELECT oid, nspname, nspowner, nspacl FROM pg_namespace WHERE nspname = %(name)s)
SELECT 'schema', nspname::text, nspowner::regrole::text, '', '' FROM here
UNION ALL
SELECT 'relation', c.relname::text, c.relowner::regrole::text,
       concat_ws(' ', c.relkind, c.relpersistence, c.relrowsecurity, c.reloptions,
                 (SELECT reloptions FROM pg_class AS t WHERE t.oid = c.reltoastrelid),
                 pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid),
                 (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = c.oid)),
       obj_description(c.oid, 'pg_class')
  FROM pg_class AS c, here WHERE c.relnamespace = here.oid
UNION ALL
SELECT 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod),
       concat_ws(' ', a.attnum, a.attnotnull, a.attidentity, a.attislocal, a.attinhcount,
                 a.attstorage, a.attcompression, pg_get_expr(d.adbin, d.adrelid)),
       col_description(c.oid, a.attnum)
  FROM here, pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
       LEFT JOIN pg_attrdef AS d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
 WHERE c.relnamespace = here.oid
UNION ALL
SELECT 'constraint', c.conname::text, c.conrelid::regclass::text, pg_get_constraintdef(c.oid),
       concat_ws(' ', c.convalidated, c.condeferrable, c.condeferred)
  FROM pg_constraint AS c, here WHERE c.connamespace = here.oid
UNION ALL
SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid),
       concat_ws(' ', i.indisvalid, i.indisprimary, i.indisunique, i.indisreplident), ''
  FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid, here
 WHERE c.relnamespace = here.oid
UNION ALL
SELECT 'sequence', s.seqrelid::regclass::text,
       concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax,
                 s.seqcache, s.seqcycle),
       (SELECT format('%%s.%%s', d.refobjid::regclass, d.refobjsubid) FROM pg_depend AS d
         WHERE d.classid = 'pg_class'::regclass AND d.objid = s.seqrelid
           AND d.refclassid = 'pg_class'::regclass), ''
  FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid, here
 WHERE c.relnamespace = here.oid
UNION ALL
SELECT 'trigger', t.tgname || ' ' || t.tgrelid::regclass, pg_get_triggerdef(t.oid),
       t.tgenabled::text, ''
  FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid, here
 WHERE c.relnamespace = here.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'function', p.oid::regprocedure::text, p.proowner::regrole::text,
       pg_get_functiondef(p.oid), obj_description(p.oid, 'pg_proc')
  FROM pg_proc AS p, here WHERE p.pronamespace = here.oid
UNION ALL
SELECT 'right', what, grantee::regrole::text, privilege, grantor::regrole::text
  FROM (SELECT here.nspname::text, acl.*
          FROM here, aclexplode(coalesce(nspacl, acldefault('n', nspowner))) AS acl
        UNION ALL
        SELECT c.relname::text, acl.*
          FROM pg_class AS c, here,
               aclexplode(coalesce(c.relacl, acldefault(
                   (CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", c.relowner))) AS acl
         WHERE c.relnamespace = here.oid AND c.relkind IN ('r', 'p', 'S')
        UNION ALL
        SELECT p.oid::regprocedure::text, acl.*
          FROM pg_proc AS p, here,
               aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS acl
         WHERE p.pronamespace = here.oid)
       AS rights (what, grantor, grantee, privilege, is_grantable)
UNION ALL
SELECT 'other', pg_describe_object(d.classid, d.objid, 0), d.deptype::text, '', ''
  FROM pg_depend AS d, here
 WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = here.oid
ORDER BY 1, 2, 3, 4, 5
"""


def catalogue(dsn: str, name: str) -> list[tuple[Any, ...]]:
    """Return all that a schema holds, as the server describes it."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(CATALOGUE, {"name": name}).fetchall()
        ledger = conn.execute(
            f"SELECT version, name FROM {name}.migrations ORDER BY version".encode()  # noqa: S608  # our own
        ).fetchall()
    # The setting of the inbox is called after the schema's oid.
    said = [tuple(re.sub(r"claims_\d+", "claims_?", str(cell)) for cell in row) for row in rows]
    return [*said, *ledger]


@pytest.fixture(scope="module")
def roles(stack: Servers) -> Iterator[list[str]]:
    """Give the owner, a writer, a relay and a consumer."""
    names = [f"{duty}_{uuid4().hex[:12]}" for duty in ("owner", "writer", "relay", "consumer")]
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        yield names
        for name in names:
            admin.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def owned(stack: Servers, roles: list[str]) -> Iterator[str]:
    """Give a new database, to the role that owns it."""
    with new_database(stack) as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
            admin.execute(f"ALTER DATABASE {name} OWNER TO {roles[0]}".encode())
        yield make_conninfo(dsn, user=roles[0], password="x")  # noqa: S106  # of a moment


@pytest.fixture(scope="module")
def fresh(stack: Servers, roles: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the catalogue of new installations."""
    owner, *_ = roles
    with new_database(stack) as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
            admin.execute(f"ALTER DATABASE {name} OWNER TO {owner}".encode())
        own = make_conninfo(dsn, user=owner, password="x")  # noqa: S106  # of a moment
        with psycopg.connect(own) as conn:
            schema.install(conn, roles=outbox_roles(roles))
            inbox_schema.install(conn, consumers=[roles[3]])
            push_schema.install(conn, roles=[roles[3]])
        return {part: catalogue(dsn, part) for part in ("outbox", "inbox", "push")}


def outbox_roles(roles: list[str]) -> schema.Roles:
    return schema.Roles(writers=[roles[1]], relays=[roles[2]])


def by_init(conn: psycopg.Connection, version: int, roles: list[str]) -> None:
    assert version + len(schema.install(conn, roles=outbox_roles(roles))) == NEWEST


def by_printed_sql(conn: psycopg.Connection, version: int, roles: list[str]) -> None:
    conn.execute(schema.script(since=version, roles=outbox_roles(roles)).encode())


def by_statements(conn: psycopg.Connection, version: int, roles: list[str]) -> None:
    for number in range(1, NEWEST + 1):
        conn.execute(steps.install(number, roles=outbox_roles(roles)).encode())
        assert schema.version(conn) == (version if number <= version else NEWEST)


Upgrade = Callable[[psycopg.Connection, int, list[str]], None]


# All three run the same pieces of SQL, so a few versions do for two of them.
EACH = [(version, by_init) for version in range(1, old_schemas.OUTBOX + 1)]
SOME = [(version, way) for version in (1, 3, 13, 15) for way in (by_printed_sql, by_statements)]


@pytest.mark.parametrize(("version", "upgrade"), [*EACH, *SOME])
def test_every_version_of_the_outbox_comes_to_the_catalogue_of_a_new_one(
    owned: str,
    roles: list[str],
    fresh: dict[str, list[tuple[Any, ...]]],
    version: int,
    upgrade: Upgrade,
) -> None:
    _, writer, relay, _ = roles
    with psycopg.connect(owned) as conn:
        conn.execute(old_schemas.script(version).encode())
        # The rights that roles had at the time.
        granted = [f"USAGE ON SCHEMA outbox TO {writer}", f"USAGE ON SCHEMA outbox TO {relay}"]
        if version > 1:
            granted += [
                f"EXECUTE ON FUNCTION outbox.append, outbox.append_many TO {writer}",
                f"SELECT ON outbox.events, outbox.migrations, outbox.claims TO {relay}",
            ]
            if version < 14:
                granted.append(f"INSERT ON outbox.claims TO {relay}")
        if version == 1:
            # Only writers had USAGE.
            granted.pop()
        for right in granted:
            conn.execute(f"GRANT {right}".encode())
        conn.commit()
        upgrade(conn, version, roles)
    assert catalogue(owned, "outbox") == fresh["outbox"]
    assert as_in_the_files(owned, OUTBOX, "outbox")


@pytest.mark.parametrize("upgrade", [by_init, by_printed_sql, by_statements])
@pytest.mark.parametrize("version", [1, 3, 15])
def test_an_upgrade_by_another_role_leaves_everything_to_the_owner(
    stack: Servers,
    owned: str,
    roles: list[str],
    fresh: dict[str, list[tuple[Any, ...]]],
    version: int,
    upgrade: Upgrade,
) -> None:
    owner, writer, relay, member = roles
    with psycopg.connect(owned) as conn:
        conn.execute(old_schemas.script(version).encode())
        name = conn.info.dbname
    by = make_conninfo(stack.postgres.dsn, dbname=name)
    with psycopg.connect(by) as admin:
        if version == 1:
            admin.execute(f"GRANT {owner} TO {member}; SET LOCAL ROLE {member}".encode())
        upgrade(admin, version, roles)
        admin.execute(f"RESET ROLE; REVOKE {owner} FROM {member}".encode())
        # An earlier version left it to that role; a second run by the same one mends that.
        admin.execute("ALTER FUNCTION outbox.restricts_topics OWNER TO CURRENT_USER")
        schema.install(admin)
    # A new installation by the owner itself has the same owners and the same rights.
    assert catalogue(owned, "outbox") == fresh["outbox"]
    with psycopg.connect(make_conninfo(owned, user=writer)) as conn:
        write(conn, Event(topic="orders", type="OrderPlaced"))
    with psycopg.connect(make_conninfo(owned, user=relay)) as conn:
        assert conn.execute("SELECT outbox.settle_shards('shop', '{shop}')").fetchone() == (1,)


def test_the_inbox_and_push_are_their_owners_too_whoever_upgrades_them(
    stack: Servers, owned: str, roles: list[str], fresh: dict[str, list[tuple[Any, ...]]]
) -> None:
    with psycopg.connect(owned) as conn:
        for part, version in (("inbox", old_schemas.INBOX), ("push", old_schemas.PUSH)):
            conn.execute(old_schemas.script(version, part, part=part).encode())
        name = conn.info.dbname
    with psycopg.connect(make_conninfo(stack.postgres.dsn, dbname=name)) as admin:
        inbox_schema.install(admin, consumers=[roles[3]])
        push_schema.install(admin, roles=[roles[3]])
    assert {part: catalogue(owned, part) for part in ("inbox", "push")} == {
        part: fresh[part] for part in ("inbox", "push")
    }


@pytest.mark.parametrize("version", range(1, old_schemas.INBOX + 1))
@pytest.mark.parametrize("printed", [True, False])
def test_every_version_of_the_inbox_comes_to_the_catalogue_of_a_new_one(
    owned: str,
    roles: list[str],
    fresh: dict[str, list[tuple[Any, ...]]],
    version: int,
    *,
    printed: bool,
) -> None:
    consumer = roles[3]
    with psycopg.connect(owned) as conn:
        conn.execute(old_schemas.script(version, "inbox", part="inbox").encode())
        if printed:
            sql = inbox_schema.script(since=version, consumers=[consumer])
            conn.execute(sql.encode())
        else:
            inbox_schema.install(conn, consumers=[consumer])
    assert catalogue(owned, "inbox") == fresh["inbox"]
    assert as_in_the_files(owned, INBOX, "inbox")


@pytest.mark.parametrize("version", range(1, old_schemas.PUSH + 1))
@pytest.mark.parametrize("printed", [True, False])
def test_every_version_of_push_comes_to_the_catalogue_of_a_new_one(
    owned: str,
    roles: list[str],
    fresh: dict[str, list[tuple[Any, ...]]],
    version: int,
    *,
    printed: bool,
) -> None:
    role = roles[3]
    with psycopg.connect(owned) as conn:
        conn.execute(old_schemas.script(version, "push", part="push").encode())
        conn.execute("INSERT INTO push.subscriptions (id, spec) VALUES ('a', '{}')")
        if printed:
            conn.execute(push_schema.script(since=version, roles=[role]).encode())
        else:
            push_schema.install(conn, roles=[role])
        # A subscription of before has no owner.
        kept = conn.execute("SELECT id, owner, state FROM push.subscriptions").fetchall()
    assert kept == [("a", "", "active")]
    assert catalogue(owned, "push") == fresh["push"]
    assert as_in_the_files(owned, PUSH, "push")


@pytest.mark.parametrize("name", ["outbox", "a \"b\" $append$ 'c' {name}"])
def test_a_new_installation_has_the_functions_of_the_files(database: str, name: str) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn, name)
        inbox_schema.install(conn, f"{name} i")
        push_schema.install(conn, f"{name} p")
    assert as_in_the_files(database, OUTBOX, name)
    assert as_in_the_files(database, INBOX, f"{name} i")
    assert as_in_the_files(database, PUSH, f"{name} p")
    assert set(PUSH.functions()) == {"changed", "hold", "holding", "let_go"}


def as_in_the_files(dsn: str, part: Migrations, name: str) -> bool:
    """Check that the functions of a schema are those of the files, one of each name."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(
            "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace ="
            " (SELECT oid FROM pg_namespace WHERE nspname = %s) ORDER BY 1",
            [name],
        ).fetchall()
    files = {file: fill(text, name) for file, text in part.functions().items()}
    settings = SETTINGS.get(part.default, set())
    assert [function for function, _ in rows] == sorted(files.keys() | settings)
    for function, text in rows:
        assert function in settings or f"${text}$" in files[function], function
    return True


def test_an_upgrade_brings_back_a_function_that_was_changed_and_keeps_the_settings(
    owned: str, roles: list[str], fresh: dict[str, list[tuple[Any, ...]]]
) -> None:
    with psycopg.connect(owned, autocommit=True) as conn:
        conn.execute(old_schemas.script(old_schemas.OUTBOX).encode())
        conn.execute(
            "CREATE OR REPLACE FUNCTION outbox.write_to_leaf(number int) RETURNS void"
            " LANGUAGE sql AS 'SELECT'; ALTER FUNCTION outbox.append SET work_mem = '1MB'"
        )
        schema.install(conn, roles=outbox_roles(roles))
        assert catalogue(owned, "outbox") == fresh["outbox"]
        conn.execute(old_schemas.script(old_schemas.OUTBOX, "other").encode())
        schema.limit_events(conn, "other", 5_000)
        capture._set_mode(conn, "other", wal=True)  # without the log
        newer = [step.version for step in schema.install(conn, "other")]
        assert newer == list(range(old_schemas.OUTBOX + 1, NEWEST + 1))
        row = conn.execute("SELECT other.writes_to_wal(), other.max_event_bytes()").fetchone()
        assert row == (True, 5_000)


def test_printed_sql_for_the_newest_version_brings_the_functions_back(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        schema.install(conn)
        before = catalogue(database, "outbox")
        conn.execute("ALTER FUNCTION outbox.drained RESET ALL; DROP FUNCTION outbox.leaves")
        assert catalogue(database, "outbox") != before
        conn.execute(schema.script(since=NEWEST).encode())
    assert catalogue(database, "outbox") == before


def test_an_inbox_that_was_restored_elsewhere_keeps_the_setting_of_its_triggers(
    database: str,
) -> None:
    old = old_schemas.script(old_schemas.INBOX, "inbox", part="inbox")
    elsewhere = old.replace("::regnamespace::oid)::text", "::regnamespace::oid::bigint + 1)::text")
    assert elsewhere != old
    with psycopg.connect(database) as conn:
        conn.execute(elsewhere.encode())
        inbox_schema.install(conn)
        conn.commit()
        first, second = (
            conn.execute("SELECT inbox.claim('c', 't', 0)").fetchone() for _ in range(2)
        )
        assert first is not None
        assert second is not None
        conn.commit()
        conn.execute("SELECT inbox.take_claimed('c', 'a@/s', 0, %s)", second)
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("SELECT inbox.claim('c', 't', 0)")
        with pytest.raises(psycopg.Error, match="claimed the partition meanwhile"):
            conn.commit()
