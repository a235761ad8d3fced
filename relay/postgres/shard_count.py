"""The number of shards of an outbox, noted in its database, where all its relays look."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from relay.errors import Refused
from relay.postgres.capture.catalog import number_of_shards
from relay.rules.places.snapshot import Snapshot
from relay.rules.sharding import Shard

RESHARD = "dovecote relay reshard"


def settle(conn: psycopg.Connection[Any], schema: str, shard: Shard) -> None:
    """
    Check that the outbox of `shard` is published in `shard.of` shards, and note it if it is new.

    Raises:
        Refused: the number is another; then two relays could publish the events of one key.
    """
    found = number_of_shards(conn, schema, shard)
    if found is None:
        msg = (
            "events of this outbox are in the write-ahead log, where each shard needs a slot of "
            f"its own: run `{RESHARD}`, which makes them; or set `shards = 1`"
        )
        raise Refused(msg)
    _compare(found, shard)


def require_noted(conn: psycopg.Connection[Any], schema: str, shard: Shard) -> None:
    """
    Check that the outbox of `shard` is published in `shard.of` shards, or never was.

    Notes nothing, and needs only the rights of a relay.

    Raises:
        Refused: it is published in another number of shards.
    """
    try:
        with conn.transaction():
            conn.execute("SET TRANSACTION READ ONLY")
            found = number_of_shards(conn, schema, Shard(shard.outbox))
    except psycopg.errors.ReadOnlySqlTransaction:
        # The function tried to note a number, so there was none.
        return
    if found is not None:
        _compare(found, shard)


@contextmanager
def settling(
    conn: psycopg.Connection[Any], schema: str, shard: Shard, *, is_new: bool
) -> Iterator[None]:
    """Set the shard count of a new outbox; undo it if the caller's operation is refused."""
    if is_new:
        settle(conn, schema, shard)
    try:
        yield
    except Refused:
        if is_new:
            conn.execute(
                sql.SQL("DELETE FROM {} WHERE name = %s AND shards = %s AND {}").format(
                    sql.Identifier(schema, "sharding"), _HERE
                ),
                [shard.outbox, shard.of],
            )
        raise


def in_force(conn: psycopg.Connection[Any], schema: str, outbox: str) -> int | None:
    """Return in how many shards an outbox is published; None if it never was."""
    row = conn.execute(
        sql.SQL("SELECT shards FROM {} WHERE name = %s AND {}").format(
            sql.Identifier(schema, "sharding"), _HERE
        ),
        [outbox],
    ).fetchone()
    return int(row[0]) if row else None


def change(
    conn: psycopg.Connection[Any],
    schema: str,
    before: Sequence[Shard],
    after: Sequence[Shard],
    *,
    published: Snapshot,
) -> None:
    """
    Let other shards publish an outbox from now on; all of them begin after `published`.

    Nobody may change the capture meanwhile.

    Raises:
        Refused: somebody else was faster.
    """
    outbox = before[0].outbox
    with conn.transaction():
        # Relays rely on this when they begin, so a crash must not take it back.
        conn.execute("SET LOCAL synchronous_commit = on")
        done = conn.execute(
            sql.SQL(
                "UPDATE {} SET shards = %s, since = now() WHERE name = %s AND shards = %s AND {}"
            ).format(sql.Identifier(schema, "sharding"), _HERE),
            [len(after), outbox, len(before)],
        )
        if done.rowcount != 1:
            msg = f"the shards of outbox {outbox!r} were changed by somebody else meanwhile"
            raise Refused(msg)
        relays = sql.Identifier(schema, "relays")
        conn.execute(
            sql.SQL("DELETE FROM {} WHERE name = ANY (%s)").format(relays),
            [[each.name for each in before]],
        )
        conn.execute(
            sql.SQL(
                "SELECT {}(name, %s::text::pg_snapshot, NULL, 0) FROM unnest(%s::text[]) AS name"
            ).format(sql.Identifier(schema, "confirm")),
            [str(published), [each.name for each in after]],
        )


_HERE = sql.SQL(
    "system_identifier = (SELECT c.system_identifier::text FROM pg_control_system() AS c)"
    " AND database = (SELECT oid::bigint FROM pg_database WHERE datname = current_database())"
)
"""Selects what is noted of this database, not of the one of which it is a copy."""


def _compare(found: int, shard: Shard) -> None:
    if found != shard.of:
        msg = (
            f"outbox {shard.outbox!r} is published in {_counted(found)}, and this relay has "
            f"`shards = {shard.of}`: set it to {found}; or, to change the number, end all relays "
            f"of this outbox, set it everywhere and run `{RESHARD}`"
        )
        raise Refused(msg)


def _counted(shards: int) -> str:
    return "one piece" if shards == 1 else f"{shards} shards"
