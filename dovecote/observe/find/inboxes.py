"""Ask an inbox whether it has handled events, and whether it holds them."""

from collections.abc import Collection
from typing import NamedTuple

from psycopg import sql

from dedup.rules.identity import Identity, stored, stored_before
from dedup.rules.unread import Place
from dovecote.observe.find.rules.facts import Handled, Held, moment
from outbox.postgres import session

_STATEMENT_MS = 8_000
_OURS = {"connect_timeout": 5, "tcp_user_timeout": 10_000}


class InboxAnswer(NamedTuple):
    """The lines of an inbox, by event, and the records that its consumer holds."""

    handled: dict[Identity, list[Handled]]
    held: dict[Place, Held]


def ask(dsn: str, schema: str, group: str, events: Collection[Identity]) -> InboxAnswer:
    """
    Return what a consumer has handled of these events, the earliest round first.

    Raises:
        psycopg.Error: Postgres does not answer, or this role may not read the tables.
    """
    names = {name: each for each in events for name in (stored(each), stored_before(each))}
    handled: dict[Identity, list[Handled]] = {}
    with session.connect(dsn, name="dovecote find", ours=_OURS) as conn:
        conn.execute(f"SET statement_timeout = {_STATEMENT_MS}".encode())
        rows = conn.execute(
            sql.SQL(
                "SELECT id, round, handled_at FROM {} WHERE consumer = %s AND id = ANY (%s)"
                " ORDER BY round, handled_at"
            ).format(sql.Identifier(schema, "handled")),
            [group, list(names)],
        ).fetchall()
    for name, round_, at in rows:
        handled.setdefault(names[name], []).append(Handled(round_, at))
    return InboxAnswer(handled, held(dsn, schema, group))


def held(dsn: str, schema: str, group: str) -> dict[Place, Held]:
    """
    Return the newest records that a group holds until they are tried again.

    Raises:
        psycopg.Error: Postgres does not answer, or this role may not read the table.
    """
    with session.connect(dsn, name="dovecote find", ours=_OURS) as conn:
        conn.execute(f"SET statement_timeout = {_STATEMENT_MS}".encode())
        rows = conn.execute(
            sql.SQL(
                'SELECT topic, partition, "offset", attempt, due, error FROM {}'
                " WHERE consumer = %s ORDER BY held_at DESC LIMIT 10000"
            ).format(sql.Identifier(schema, "held")),
            [group],
        ).fetchall()
    return {
        Place(topic, partition, offset): Held(attempt, moment(due), error or "")
        for topic, partition, offset, attempt, due, error in rows
    }
