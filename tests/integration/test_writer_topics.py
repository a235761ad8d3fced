"""A writer's role may be restricted to topics, and the database enforces it."""

from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from outbox import Event, schema, write
from outbox.errors import BadSettings, NotAllowed
from outbox.schema.capture import use_wal
from tests.support.commands import init
from tests.support.crews import Crew, new_role
from tests.support.wal_capturing import capturing

REFUSED = r"role {0} may not write to topic 'payments'; run .* --writer-role {0} --topics …"


@pytest.fixture
def shop(bare: Crew) -> Crew:
    """A writer that may write to `orders` and `order_*`, and a role that is not restricted."""
    assert init("--dsn", bare.owner, "--writer-role", bare.role("stranger")).returncode == 0
    done = init(
        *("--dsn", bare.owner, "--writer-role", bare.role("writer")),
        *("--topics", "orders", "--topics", "order_*"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return bare


def commit(dsn: str, *topics: str) -> None:
    with psycopg.connect(dsn) as conn:
        write(conn, *[Event(topic=each, type="T", value=b"1") for each in topics])


def written(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT topic FROM outbox.events ORDER BY position").fetchall()
    return [topic for (topic,) in rows]


def run(dsn: str, query: LiteralString | sql.Composed, *values: Any) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(query, values or None)


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_writer_writes_to_its_topics_and_to_no_others_by_any_path(
    shop: Crew, capture: str
) -> None:
    if capture == "wal":
        use_wal(shop.owner, "outbox")
    refused = REFUSED.format(shop.role("writer"))
    commit(shop.writer, "orders")
    commit(shop.writer, "orders", "order_lines")
    for topics in (["payments"], ["orders", "payments"], ["payments", "orders", "order_1"]):
        with pytest.raises(NotAllowed, match=refused):
            commit(shop.writer, *topics)
    # `_` is no pattern, and nothing but the whole name counts.
    for topic in ("orderXlines", "orders2", "my-orders", "ORDERS"):
        with pytest.raises(NotAllowed, match=f"may not write to topic '{topic}'"):
            commit(shop.writer, topic)
    direct: list[LiteralString] = [
        (
            "INSERT INTO outbox.events (time, id, topic, type, source)"
            " VALUES (now(), gen_random_uuid(), 'payments', 'T', 's')"
        ),
        "COPY outbox.events_0 (topic) FROM STDIN",
        (
            "SELECT outbox.emit_many('x', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',"
            " '{}', '{}', '{}')"
        ),
        "SELECT outbox.require_topics('{}')",
        "INSERT INTO outbox.writer_topics VALUES ('x', '*', '%%')",
        (
            "CREATE OR REPLACE FUNCTION outbox.restricts_topics() RETURNS boolean LANGUAGE sql"
            " IMMUTABLE AS 'SELECT false'"
        ),
    ]
    for query in direct:
        with pytest.raises(errors.InsufficientPrivilege):
            run(shop.writer, query)
    # The owner and a role that is not restricted go on.
    commit(shop.owner, "payments")
    commit(shop.stranger, "payments")
    if capture == "table":
        assert written(shop.owner) == ["orders", "orders", "order_lines", "payments", "payments"]
        return
    run(shop.writer, "SELECT pg_logical_emit_message(true, 'dovecote/0', 'payments')")
    commit(shop.writer, "orders")
    with capturing(shop.owner) as log:
        place, found = log.resume(None), list[str]()
        while len(found) < 6:
            for batch in log.batches(place):
                place = batch.cursor
                found += [row[3] for row in batch.rows]
    assert found == ["orders", "orders", "order_lines", "payments", "payments", "orders"]


def test_the_role_is_the_sessions_even_in_a_function_of_another_role(shop: Crew) -> None:
    stranger = shop.role("stranger")
    run(shop.owner, "CREATE SCHEMA helpers")
    run(shop.owner, "GRANT USAGE, CREATE ON SCHEMA helpers TO PUBLIC")
    run(
        shop.stranger,
        "CREATE FUNCTION helpers.pay(topic text) RETURNS void LANGUAGE sql SECURITY DEFINER AS"
        " $$SELECT outbox.append(topic, 'k', 'v', 'T')$$",
    )
    with pytest.raises(errors.InsufficientPrivilege, match="may not write to topic 'payments'"):
        run(shop.writer, "SELECT helpers.pay('payments')")
    run(shop.writer, "SELECT helpers.pay('orders')")
    with new_role(shop.owner, "third") as (third, dsn):
        # Nobody said where this one may write.
        with pytest.raises(errors.InsufficientPrivilege, match=f"role {third} may not write"):
            run(dsn, "SELECT helpers.pay('orders')")
        # A member may write where its role may.
        grant = sql.SQL("GRANT {} TO {}")
        run(shop.owner, grant.format(*map(sql.Identifier, (shop.role("writer"), third))))
        commit(dsn, "orders")
        with pytest.raises(NotAllowed, match=f"role {third} may not write"):
            commit(dsn, "payments")
        run(shop.owner, grant.format(*map(sql.Identifier, (stranger, third))))
        with psycopg.connect(dsn) as conn:
            conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(shop.role("writer"))))
            with pytest.raises(NotAllowed, match="may not write to topic"):
                write(conn, Event(topic="payments", type="T", value=b"1"))
            conn.rollback()
            conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(stranger)))
            write(conn, Event(topic="payments", type="T", value=b"1"))


def test_a_restriction_stays_until_it_is_lifted_and_open_sessions_obey_it(bare: Crew) -> None:
    writer = ("--dsn", bare.owner, "--writer-role", bare.role("writer"))
    assert init(*writer).returncode == 0
    with psycopg.connect(bare.writer, autocommit=True) as conn:
        write_to = "SELECT outbox.append(%s, 'k', 'v', 'T')"
        conn.execute(write_to, ["payments"])
        assert init(*writer, "--topics", "order?").returncode == 0
        conn.execute(write_to, ["orders"])
        with pytest.raises(errors.InsufficientPrivilege, match="may not write"):
            conn.execute(write_to, ["payments"])
        # Another run, and an upgrade, leave it as it is.
        assert init(*writer).returncode == 0
        with pytest.raises(errors.InsufficientPrivilege, match="may not write"):
            conn.execute(write_to, ["payments"])
        assert init(*writer, "--topics", "*").returncode == 0
        conn.execute(write_to, ["payments"])
    with psycopg.connect(bare.owner) as conn:
        assert conn.execute("SELECT outbox.restricts_topics()").fetchone() == (False,)


def test_a_restricted_role_with_another_name_is_not_let_in_by_a_run_for_others(
    shop: Crew,
) -> None:
    writer = shop.role("writer")
    rename = sql.SQL("ALTER ROLE {} RENAME TO {}")
    other = f"{writer}_renamed"
    with psycopg.connect(shop.owner, autocommit=True) as owner:
        owner.execute(rename.format(sql.Identifier(writer), sql.Identifier(other)))
        try:
            owner.execute(
                sql.SQL("ALTER ROLE {} PASSWORD 'x'").format(sql.Identifier(other)),
            )
            dsn = make_conninfo(shop.owner, user=other, password="x")  # noqa: S106  # of a moment
            # Nobody has said where a role of this name may write.
            with pytest.raises(NotAllowed, match="may not write to topic 'payments'"):
                commit(dsn, "payments")
            run_for_others = ("--dsn", shop.owner, "--writer-role", shop.role("stranger"))
            assert init(*run_for_others).returncode == 0
            with pytest.raises(NotAllowed, match="may not write to topic 'payments'"):
                commit(dsn, "payments")
            commit(shop.stranger, "payments")
        finally:
            owner.execute(rename.format(sql.Identifier(other), sql.Identifier(writer)))


def test_the_printed_sql_restricts_as_well(bare: Crew) -> None:
    roles = schema.Roles(writers=[bare.role("writer")], topics=["orders"])
    with psycopg.connect(bare.owner) as conn:
        conn.execute(schema.script(roles=roles).encode())
    commit(bare.writer, "orders")
    with pytest.raises(NotAllowed, match="may not write"):
        commit(bare.writer, "payments")


def test_what_is_no_pattern_is_refused() -> None:
    for wrong in ("orders[ab]", "a b", "", "orders%", "it's"):
        with pytest.raises(BadSettings, match="no pattern of topics"):
            schema.Roles(writers=["shop"], topics=[wrong])
    with pytest.raises(BadSettings, match="name the roles"):
        schema.Roles(topics=["orders"])
