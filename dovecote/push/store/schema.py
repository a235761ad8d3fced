"""Install and upgrade the tables of `dovecote push`: numbered migrations, applied once."""

from collections.abc import Sequence

from psycopg import Connection, sql

from outbox.schema.migrations import Migration, Migrations
from outbox.schema.templates import fill

DEFAULT_SCHEMA = "push"

_PUSH = Migrations(
    "dovecote.push",
    "tables of push",
    "push",
    DEFAULT_SCHEMA,
    shared={"outbox.schema": ["holding", "hold", "let_go"]},
)

_GRANTS = """
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.migrations, {schema}.revision TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.subscriptions, {schema}.counts,
    {schema}.attempts, {schema}.reports, {schema}.held, {schema}.audit TO {role};
GRANT EXECUTE ON FUNCTION {schema}.hold, {schema}.let_go, {schema}.holding TO {role};
"""


def grants(roles: Sequence[str], schema: str = DEFAULT_SCHEMA) -> str:
    """Return the SQL that grants each role what `push serve` needs; it can be repeated."""
    text = _PUSH.belongings().exactly(_GRANTS)
    return "".join(fill(text, schema, role=sql.Identifier(role).as_string()) for role in roles)


def script(schema: str = DEFAULT_SCHEMA, *, since: int = 0, roles: Sequence[str] = ()) -> str:
    """Return the SQL from version `since` to the newest, including `roles`."""
    return _PUSH.script(schema, since=since, grants=grants(roles, schema))


def install(
    conn: Connection, schema: str = DEFAULT_SCHEMA, *, roles: Sequence[str] = ()
) -> list[Migration]:
    """
    Apply the missing steps, all or none, and return them; grant `roles` their rights.

    Raises:
        BadSettings: there is no such role, or the schema holds what others use.
        NotAllowed: the schema is another role's, and only its owner can grant rights in it.
        SchemaTooNew: the database was upgraded by a newer Dovecote.
    """
    return _PUSH.install(conn, schema, grants=grants(roles, schema))


def require(conn: Connection, schema: str = DEFAULT_SCHEMA) -> None:
    """
    Check that the tables are installed at the version this Dovecote needs.

    Raises:
        SchemaMissing: they are missing or older; the message has the command that installs them.
        SchemaTooNew: they were upgraded by a newer Dovecote.
    """
    _PUSH.require(conn, schema)


def place(schema: str) -> str:
    """Return the option that makes a command of `dovecote init` apply to `schema`."""
    return _PUSH.place(schema)
