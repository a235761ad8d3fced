"""Numbered SQL steps of one package, applied to a schema of Postgres once each."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

from psycopg import Connection, errors, sql

from outbox.errors import BadSettings, NotAllowed, SchemaMissing, SchemaTooNew
from outbox.session import OWN_FUNCTIONS_ONLY

# One number for all schemas of ours in a database: two `dovecote init` at once take turns.
LOCK = 0x646F7665636F7465

# NAMEDATALEN, less the byte that ends it: what is longer is cut, and two names may be one then.
_LONGEST_NAME = 63

_LEDGER = """
CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""

# Ahead of what came after a version. Applied to an older one, it would leave steps out for good,
# for what is there is told by the newest alone; and nobody would be told.
_BEHIND = """
DO $behind$
DECLARE
    found CONSTANT int := (SELECT coalesce(max(version), 0) FROM {schema}.migrations);
BEGIN
    IF found <> {since} THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format(
            'this is what came after version {since}, and the schema is at version %s: print '
            'what came after that one (--since %s); nothing was changed', found, found);
    END IF;
END
$behind$;
"""

# Of the owner they hide something if that is forced, and of superusers and their like nothing.
_HIDDEN = """
SELECT c.relname::text FROM pg_catalog.pg_class AS c, pg_catalog.pg_namespace AS n,
       pg_catalog.pg_roles AS o
 WHERE n.oid = c.relnamespace AND n.nspname = %s AND o.oid = c.relowner AND c.relrowsecurity
   AND (pg_catalog.row_security_active(c.oid)
        OR c.relforcerowsecurity AND NOT (o.rolsuper OR o.rolbypassrls))
 ORDER BY c.relname LIMIT 1
"""

# Behind every step: what it made is not for everybody, whatever default privileges say.
_NOTHING_FOR_PUBLIC = """
REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step: `version` and `name` come from the file's name, `script` is its text."""

    version: int
    name: str
    script: str

    def render(self, schema: str) -> str:
        """Return the SQL of this step, and of the row that remembers it, for `schema`."""
        remember = "INSERT INTO {schema}.migrations (version, name) VALUES ({version}, {name});"
        return (
            fill(self.script, schema)
            + "\n"
            + fill(
                remember.replace("{version}", str(self.version)).replace(
                    "{name}", sql.Literal(self.name).as_string()
                ),
                schema,
            )
        )


@dataclass(frozen=True, slots=True)
class Migrations:
    """The steps in the folder `sql` of a package."""

    package: str
    thing: str
    """What they install, as messages name it."""
    option: str
    """What `dovecote init` takes to install them, if anything."""
    default: str
    """The schema they are installed in where none is named."""

    def advice(self, schema: str, *, installed: int = 0) -> str:
        """Return what to do where they, or those after version `installed`, are missing."""
        command = f"dovecote init{self.option and f' {self.option}'}{self.place(schema)}"
        printed = f"{command} --print-sql{f' --since {installed}' if installed else ''}"
        return f"run `{command}`, or apply what `{printed}` shows"

    def place(self, schema: str) -> str:
        """Return what to add to a command of `dovecote init`, for it to be about `schema`."""
        # Without it the command would install another schema, and the message would come again.
        return "" if schema == self.default else f" --schema {shlex.quote(schema)}"

    def steps(self) -> list[Migration]:
        """Return every step this version of Dovecote knows, in order."""
        steps = []
        for file in files(self.package).joinpath("sql").iterdir():
            if found := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
                script = file.read_text(encoding="utf-8")
                steps.append(Migration(int(found[1]), found[2], script))
        return sorted(steps, key=lambda step: step.version)

    def script(
        self, schema: str, *, since: int = 0, until: int | None = None, grants: str = ""
    ) -> str:
        """
        Return the SQL from version `since` to `until`, or to the newest, and `grants`.

        Raises:
            BadSettings: this version of Dovecote knows none so new as `since`.
        """
        if since > (newest := self.steps()[-1].version):
            msg = f"there is no version {since}: the newest that this Dovecote knows is {newest}"
            raise BadSettings(msg)
        steps = [
            step.render(schema)
            for step in self.steps()
            if since < step.version and (until is None or step.version <= until)
        ]
        before = _BEHIND.replace("{since}", str(since)) if since else _LEDGER
        ledger = fill(before, schema).strip() + "\n"
        return "\n".join([ledger, *steps, fill(_NOTHING_FOR_PUBLIC, schema), grants])

    def install(self, conn: Connection, schema: str, *, grants: str = "") -> list[Migration]:
        """
        Apply the steps that are missing, all or none, and return them; then run `grants`.

        Runs in a transaction of its own, or as part of the caller's open one. Two at once take
        turns.

        Raises:
            BadSettings: there is no such role.
            NotAllowed: the schema is another role's, and only its owner can grant rights in it.
            SchemaMissing: its tables are there, and what belongs in them is not.
            SchemaTooNew: the database was upgraded by a newer Dovecote.
        """
        _require_name(schema)
        with conn.transaction(), own_functions_only(conn):
            conn.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            _require_seen(conn, schema)
            installed = self.version(conn, schema)
            self._refuse_newer(installed, schema)
            if not installed:
                self._refuse_without_data(conn, schema)
            missing = [step for step in self.steps() if step.version > installed]
            if missing:
                conn.execute(self.script(schema, since=installed).encode())
            if grants:
                _grant(conn, schema, grants)
        return missing

    def version(self, conn: Connection, schema: str) -> int:
        """Return the version installed in `schema`; 0 where there is none."""
        query = sql.SQL("SELECT coalesce(max(version), 0) FROM {}.migrations")
        try:
            with conn.transaction():
                row = conn.execute(query.format(sql.Identifier(schema))).fetchone()
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return 0
        return int(row[0]) if row else 0

    def require(self, conn: Connection, schema: str) -> None:
        """
        Check that `schema` is installed at the version this Dovecote needs.

        Raises:
            NotAllowed: row-level security hides rows of it.
            SchemaMissing: it is not, or is older; the message has the command that installs it.
            SchemaTooNew: it was upgraded by a newer Dovecote.
        """
        _require_seen(conn, schema)
        installed = self.version(conn, schema)
        self._refuse_newer(installed, schema)
        if installed < (newest := self.steps()[-1].version):
            state = f"is at version {installed}, not {newest}" if installed else "is not installed"
            msg = (
                f"the {self.thing} in schema {schema!r} of database {conn.info.dbname!r} {state}; "
                f"{self.advice(schema, installed=installed)}"
            )
            raise SchemaMissing(msg)

    def _refuse_without_data(self, conn: Connection, schema: str) -> None:
        name = sql.Identifier(schema, "migrations").as_string(conn)
        row = conn.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone()
        if row is not None and row[0]:
            msg = (
                f"{name} is empty: the {self.thing} in schema {schema!r} of database "
                f"{conn.info.dbname!r} was restored without its data. Restore that of all its "
                "tables but `events`; or, if there is nothing in it to keep, `DROP SCHEMA "
                f"{sql.Identifier(schema).as_string(conn)} CASCADE` and {self.advice(schema)}"
            )
            raise SchemaMissing(msg)

    def _refuse_newer(self, installed: int, schema: str) -> None:
        newest = self.steps()[-1].version
        if installed > newest:
            msg = (
                f"schema {schema!r} is at version {installed}, this Dovecote knows {newest}; "
                "upgrade the dovecote package"
            )
            raise SchemaTooNew(msg)


@contextmanager
def own_functions_only(conn: Connection) -> Iterator[None]:
    """Look up functions and operators where nobody else can make any, within a transaction."""
    conn.execute(
        "SELECT pg_catalog.set_config('dovecote.path',"
        " pg_catalog.current_setting('search_path'), true)"
    )
    conn.execute(OWN_FUNCTIONS_ONLY.replace("SET", "SET LOCAL"))
    yield
    # It may be the caller's transaction, which goes on.
    conn.execute("SELECT set_config('search_path', current_setting('dovecote.path'), true)")


def showing(schema: str, table: str | None = None) -> str:
    """Return what to do about row-level security on a table of ours, or on any of them."""
    name = f"{sql.Identifier(schema).as_string()}.…" if table is None else ""
    name = name or sql.Identifier(schema, str(table)).as_string()
    return (
        "what it hides would be lost, or count as published: as the owner, run "
        f"`ALTER TABLE {name} DISABLE ROW LEVEL SECURITY`; who may read there, rights say already"
    )


def _require_seen(conn: Connection, schema: str) -> None:
    """
    Check that every row is seen by this role, and by the functions, which are their owner's.

    Raises:
        NotAllowed: row-level security may hide some.
    """
    row = conn.execute(_HIDDEN, [schema]).fetchone()
    if row is not None:
        msg = f"row-level security is on for table {row[0]} of schema {schema!r}; "
        raise NotAllowed(msg + showing(schema, row[0]))


def fill(text: str, schema: str) -> str:
    """Return `text` with the quoted name of the schema in the place of `{schema}`."""
    _require_name(schema)
    return text.replace("{schema}", sql.Identifier(schema).as_string())


def _grant(conn: Connection, schema: str, grants: str) -> None:
    row = conn.execute(
        "SELECT pg_has_role(nspowner, 'USAGE'), nspowner::regrole::text"
        " FROM pg_namespace WHERE nspname = %s",
        [schema],
    ).fetchone()
    # Postgres itself would only warn of grants that had no effect.
    if row is not None and not row[0]:
        msg = (
            f"schema {schema!r} belongs to role {row[1]}: run it as that role, or use --print-sql"
        )
        raise NotAllowed(msg)
    try:
        conn.execute(grants.encode())
    except errors.UndefinedObject as error:
        msg = f"{error.diag.message_primary}; create it first (CREATE ROLE … LOGIN)"
        raise BadSettings(msg) from error


def _require_name(schema: str) -> None:
    # A `%` would be a placeholder in every statement with parameters.
    if not schema or "\0" in schema or "%" in schema:
        msg = f"{schema!r} is not a schema name that can be used"
        raise BadSettings(msg)
    if len(schema.encode()) > _LONGEST_NAME:
        msg = f"schema name {schema!r} is longer than Postgres keeps: {_LONGEST_NAME} bytes"
        raise BadSettings(msg)
