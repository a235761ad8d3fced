"""Install and upgrade the outbox: numbered migrations, applied once, and its functions."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from psycopg import Connection, sql

from outbox.errors import BadSettings
from outbox.postgres.defaults import DEFAULT_SCHEMA
from outbox.postgres.ours import cursor
from outbox.schema.belongings import Belongings
from outbox.schema.migrations import Migration, Migrations
from outbox.schema.templates import array, fill, literal

__all__ = [
    "DEFAULT_SCHEMA",
    "Migration",
    "Roles",
    "fill",
    "install",
    "migrations",
    "require",
    "script",
]

_OUTBOX = Migrations(__name__, "outbox", "outbox", DEFAULT_SCHEMA)

Duty = Literal["writer", "relay"]

_PATTERN = re.compile(r"[a-zA-Z0-9._*?-]+")

# All the rights that a role needs for its duty, and no others; every program is tested with these.
_GRANTS: dict[Duty, str] = {
    "writer": """
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT EXECUTE ON FUNCTION {schema}.append, {schema}.append_many, {schema}.drained,
    {schema}.parked_lanes TO {role};
DO $topics$
BEGIN
    IF cardinality({topics}) > 0 THEN
        DELETE FROM {schema}.writer_topics WHERE role = {name};
        INSERT INTO {schema}.writer_topics
        SELECT DISTINCT {name}, * FROM unnest({topics}, {likened});
    END IF;
    IF EXISTS (SELECT FROM {schema}.writer_topics WHERE pattern <> '*') THEN
        -- From now on nobody writes without a line, and all others keep what they may. Later, a
        -- role without a line may be a restricted one that has another name now.
        INSERT INTO {schema}.writer_topics
        SELECT DISTINCT r.rolname, '*', '%'
          FROM pg_proc AS p, aclexplode(p.proacl) AS acl, pg_roles AS r
         WHERE p.pronamespace = to_regnamespace($name${schema}$name$)
           AND p.proname IN ('append', 'append_many') AND acl.privilege_type = 'EXECUTE'
           AND r.oid = acl.grantee AND acl.grantee <> p.proowner
           AND (r.rolname = {name} OR NOT {schema}.restricts_topics())
           AND NOT EXISTS (SELECT FROM {schema}.writer_topics AS w WHERE w.role = r.rolname);
        IF NOT {schema}.restricts_topics() THEN
            CREATE OR REPLACE FUNCTION {schema}.restricts_topics() RETURNS boolean
            LANGUAGE sql IMMUTABLE AS 'SELECT true';
        END IF;
    ELSIF {schema}.restricts_topics() THEN
        CREATE OR REPLACE FUNCTION {schema}.restricts_topics() RETURNS boolean
        LANGUAGE sql IMMUTABLE AS 'SELECT false';
    END IF;
END
$topics$;
""",
    "relay": """
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.events, {schema}.migrations, {schema}.claims, {schema}.reading,
    {schema}.relays, {schema}.identity TO {role};
GRANT EXECUTE ON FUNCTION {schema}.renew_claim, {schema}.begin_claim TO {role};
GRANT EXECUTE ON FUNCTION {schema}.confirm, {schema}.confirm_drained, {schema}.leaves,
    {schema}.write_to_leaf, {schema}.truncate_leaf TO {role};
GRANT EXECUTE ON FUNCTION {schema}.hold, {schema}.let_go, {schema}.holding TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.parked TO {role};
GRANT SELECT, INSERT, DELETE ON {schema}.parked_commands TO {role};
GRANT EXECUTE ON FUNCTION {schema}.settle_shards TO {role};
DO $capture$
BEGIN
    -- Who knows the prefix can forge events: only where it is needed.
    IF (SELECT state <> 'table' FROM {schema}.reading) THEN
        GRANT SELECT ON {schema}.capture TO {role};
        GRANT EXECUTE ON FUNCTION {schema}.leave_log TO {role};
    END IF;
END
$capture$;
""",
}


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles that write events, and the roles that relay them; a role may do both."""

    writers: Sequence[str] = ()
    relays: Sequence[str] = ()
    topics: Sequence[str] = ()
    """
    Names and patterns (`orders*`) of all topics that `writers` may write to. Without any, they may
    write where they may already, and new ones everywhere; `*` lifts a restriction.
    """

    def __post_init__(self) -> None:
        for each in self.topics:
            if not _PATTERN.fullmatch(each):
                msg = (
                    f"{each!r} is no pattern of topics: letters, digits, `.`, `_` and `-`, with "
                    "`*` for any text and `?` for one character"
                )
                raise BadSettings(msg)
        if self.topics and not self.writers:
            msg = "topics are those of writers: name the roles, too (--writer-role)"
            raise BadSettings(msg)

    def grants(self, schema: str) -> str:
        """Return the SQL that grants each role what it needs; it can be repeated."""
        duties: list[tuple[Duty, Sequence[str]]] = [
            ("writer", self.writers),
            ("relay", self.relays),
        ]
        exactly = _OUTBOX.belongings().exactly
        return "".join(
            fill(
                exactly(_GRANTS[duty]),
                schema,
                role=sql.Identifier(role).as_string(),
                name=literal(role),
                topics=array(self.topics),
                likened=array(map(_likened, self.topics)),
            )
            for duty, roles in duties
            for role in roles
        )


NOBODY = Roles()


def _likened(pattern: str) -> str:
    """Return a pattern as LIKE reads it, with `!` as its escape."""
    return pattern.replace("_", "!_").replace("*", "%").replace("?", "_")


def migrations() -> list[Migration]:
    """Return every step this version of Dovecote knows, in order."""
    return _OUTBOX.steps()


def script(
    schema: str = DEFAULT_SCHEMA,
    *,
    since: int = 0,
    roles: Roles = NOBODY,
) -> str:
    """Return the SQL from version `since` to the newest, for `roles` too."""
    return _OUTBOX.script(schema, since=since, grants=roles.grants(schema))


def belongings() -> Belongings:
    """Return all that the outbox makes in its schema."""
    return _OUTBOX.belongings()


def emptied(schema: str) -> str:
    """Return the error for an outbox that was restored without its data."""
    return _OUTBOX.without_data(schema)


def pieces(schema: str = DEFAULT_SCHEMA) -> list[tuple[int | None, str]]:
    """Return the SQL of an installation, each piece with the version that has it."""
    return _OUTBOX.pieces(schema)


def install(
    conn: Connection, schema: str = DEFAULT_SCHEMA, *, roles: Roles = NOBODY
) -> list[Migration]:
    """
    Apply the missing steps, all or none, and return them; grant `roles` what they need.

    Runs in its own transaction, or as part of the caller's open one. Two concurrent calls take
    turns.

    Raises:
        BadSettings: there is no such role, or the schema holds what others use.
        NotAllowed: the schema is another role's, and only its owner can grant rights in it.
        SchemaTooNew: the database was upgraded by a newer Dovecote.
    """
    return _OUTBOX.install(conn, schema, grants=roles.grants(schema))


def limit_events(conn: Connection, schema: str, most_bytes: int) -> None:
    """Set the most bytes of an event; sessions that are open already obey it as well."""
    query = "CREATE OR REPLACE FUNCTION {}() RETURNS int LANGUAGE sql IMMUTABLE AS {}"
    cursor(conn).execute(
        sql.SQL(query).format(
            sql.Identifier(schema, "max_event_bytes"), sql.Literal(f"SELECT {most_bytes:d}")
        )
    )


def advice(duty: Duty, role: str, schema: str, more: str = "") -> str:
    """Return the command that gives `role` what it lacks for its duty, with `more` options."""
    command = f"dovecote init outbox --{duty}-role {shlex.quote(role)}{more}{place(schema)}"
    return f"run `{command}` as its owner"


def place(schema: str) -> str:
    """Return the option that makes a command of `dovecote init` apply to `schema`."""
    return _OUTBOX.place(schema)


def about(schema: str, message: str) -> str:
    """Return `message` with its commands of `dovecote init` changed to apply to `schema`."""
    return re.sub(
        "`dovecote init outbox(?![^`]*--schema)", lambda it: f"{it[0]}{place(schema)}", message
    )


def installing(schema: str) -> str:
    """Return what to do if the outbox is missing in `schema`."""
    return _OUTBOX.advice(schema)


def version(conn: Connection, schema: str = DEFAULT_SCHEMA) -> int:
    """Return the version installed in `schema`; 0 if there is none."""
    return _OUTBOX.version(conn, schema)


def require(conn: Connection, schema: str = DEFAULT_SCHEMA) -> None:
    """
    Check that `schema` is installed at the version that this Dovecote needs.

    Raises:
        SchemaMissing: it is missing or older; the message has the command that installs it.
        SchemaTooNew: it was upgraded by a newer Dovecote.
    """
    _OUTBOX.require(conn, schema)
