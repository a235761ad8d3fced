"""Install and upgrade the inbox: numbered migrations, applied once, and the rights of its role."""

import shlex
from collections.abc import Sequence

from psycopg import Connection, errors, sql

from dedup.inbox import choices
from outbox.errors import NotAllowed
from outbox.postgres.ours import cursor
from outbox.schema.belongings import OURS
from outbox.schema.migrations import Migration, Migrations
from outbox.schema.templates import fill

DEFAULT_SCHEMA = choices.DEFAULT_SCHEMA

_INBOX = Migrations("dedup.inbox", "inbox", "inbox", DEFAULT_SCHEMA)

# All the rights that a consumer needs, and no others: it cannot read, change or delete what others
# handled.
_GRANTS = """
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.migrations TO {role};
GRANT EXECUTE ON FUNCTION {schema}.take, {schema}.take_many, {schema}.again, {schema}.rotate,
    {schema}.claim, {schema}.take_claimed, {schema}.take_many_claimed TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.held TO {role};
"""

# A caller that waits may ask about an event that it can name, and nothing else.
_WAITING = """
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT EXECUTE ON FUNCTION {schema}.await_events, {schema}.outcomes TO {role};
"""

_MAY = """
SELECT coalesce(bool_and(may), false) FROM (
    SELECT has_table_privilege(%(held)s, each) AS may
      FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS each
    UNION ALL
    SELECT has_function_privilege(oid, 'EXECUTE') FROM pg_proc
     WHERE pronamespace = %(schema)s::regnamespace
       AND proname IN ('take', 'again', 'rotate', 'claim') AND {ours}(%(functions)s)
) AS rights
""".replace("{ours}", OURS)


def grants(
    consumers: Sequence[str], schema: str = DEFAULT_SCHEMA, *, waiters: Sequence[str] = ()
) -> str:
    """Return the SQL that grants each role what it needs; it can be repeated."""
    return "".join(
        fill(_INBOX.belongings().exactly(text), schema, role=sql.Identifier(role).as_string())
        for text, roles in ((_GRANTS, consumers), (_WAITING, waiters))
        for role in roles
    )


def script(
    schema: str = DEFAULT_SCHEMA,
    *,
    since: int = 0,
    consumers: Sequence[str] = (),
    waiters: Sequence[str] = (),
) -> str:
    """Return the SQL from version `since` to the newest, including the rights of roles."""
    granted = grants(consumers, schema, waiters=waiters)
    return _INBOX.script(schema, since=since, grants=granted)


def install(
    conn: Connection,
    schema: str = DEFAULT_SCHEMA,
    *,
    consumers: Sequence[str] = (),
    waiters: Sequence[str] = (),
) -> list[Migration]:
    """
    Apply the missing steps, all or none, and return them.

    `consumers` and `waiters` are roles that get the rights to consume, and to wait for effects.

    Raises:
        BadSettings: there is no such role, or the schema holds what others use.
        NotAllowed: the schema is another role's, and only its owner can grant rights in it.
        SchemaTooNew: the database was upgraded by a newer Dovecote.
    """
    return _INBOX.install(conn, schema, grants=grants(consumers, schema, waiters=waiters))


def advice(schema: str) -> str:
    """Return what to do if the inbox is missing or older."""
    return _INBOX.advice(schema)


def waiting(role: str, schema: str) -> str:
    """Return what lets a role wait for effects."""
    command = f"dovecote init inbox{_INBOX.place(schema)} --waiter-role {shlex.quote(role)}"
    return f"as the schema's owner, run `{command}`"


def require(conn: Connection, schema: str = DEFAULT_SCHEMA) -> None:
    """
    Check that the inbox is installed at the version this Dovecote needs, for this role.

    Raises:
        NotAllowed: the role may not use it; the message has the command that grants the right.
        SchemaMissing: it is missing or older; the message has the command that installs it.
        SchemaTooNew: it was upgraded by a newer Dovecote.
    """
    try:
        _INBOX.require(conn, schema)
        held = sql.Identifier(schema, "held").as_string()
        name = sql.Identifier(schema).as_string()
        ours = list(_INBOX.belongings().functions)
        asked = {"held": held, "schema": name, "functions": ours}
        row = cursor(conn).execute(_MAY.encode(), asked).fetchone()
    except errors.InsufficientPrivilege as error:
        raise not_allowed(conn.info.user, schema) from error
    if row is None or not row[0]:
        raise not_allowed(conn.info.user, schema)


def not_allowed(role: str, schema: str) -> NotAllowed:
    """Return the error with the command that lets a role consume with this inbox."""
    command = f"dovecote init inbox{_INBOX.place(schema)} --consumer-role {shlex.quote(role)}"
    msg = (
        f"role {role!r} may not do all that a consumer does in schema {schema!r}: as the schema's "
        f"owner, run `{command}`"
    )
    return NotAllowed(msg)
