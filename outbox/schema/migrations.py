"""
The SQL of one package: numbered steps, and functions.

A step is applied to a schema of Postgres once. Each function is in a file of its own, as it is
today; every installation and every upgrade applies all of them.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from importlib.resources import files

from psycopg import Connection, errors, sql

from outbox.errors import BadSettings, DovecoteError, NotAllowed, SchemaMissing, SchemaTooNew
from outbox.postgres.ours import cursor
from outbox.postgres.session import OWN_FUNCTIONS_ONLY
from outbox.schema.belongings import (
    BEHIND,
    EMPTIED,
    FOUND,
    INSTALLED,
    LEDGER,
    NOTHING_FOR_PUBLIC,
    ONE_OWNER,
    PATIENCE,
    TURN,
    Belongings,
    require_seen,
)
from outbox.schema.holds import lockers
from outbox.schema.templates import fill, literal, quoted, require_name

# How often to begin anew if somebody else has just installed the same.
_TURNS = 2

# One statement, so that it is one transaction with one path whatever runs it.
_SCRIPT = """
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
BEGIN
    -- Others may have functions on the path that fit better than Postgres's own.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
%s
    PERFORM set_config('search_path', path, true);
END
"""

_MADE_MEANWHILE = (
    errors.UniqueViolation,
    errors.DuplicateSchema,
    errors.DuplicateTable,
    errors.DuplicateFunction,
    errors.DuplicateObject,
    errors.ObjectNotInPrerequisiteState,
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step: `version` and `name` come from the file's name, `script` is its text."""

    version: int
    name: str
    script: str
    after: str = ""
    """SQL that runs once, too, but needs the functions: triggers, and rights to functions."""

    def render(self, schema: str) -> str:
        """Return the SQL of this step, and of the row that records it, for `schema`."""
        remember = "INSERT INTO {schema}.migrations (version, name) VALUES ({version}, {name});"
        return (
            fill(self.script, schema)
            + "\n"
            + fill(
                remember,
                schema,
                version=str(self.version),
                name=literal(self.name),
            )
        )


@dataclass(frozen=True, slots=True)
class Migrations:
    """The steps and functions in the folder `sql` of a package."""

    package: str
    thing: str
    """The thing that the steps install, as messages name it."""
    part: str
    """The command of `dovecote init` that installs it."""
    default: str
    """The schema to install into if none is named."""
    shared: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The functions that are taken from other packages, by the package."""

    def advice(self, schema: str, *, installed: int = 0) -> str:
        """Return what to do if the steps, or those after version `installed`, are missing."""
        command = f"dovecote init {self.part}{self.place(schema)}"
        printed = f"{command} --print-sql{f' --since {installed}' if installed else ''}"
        return f"run `{command}`, or apply what `{printed}` shows"

    def place(self, schema: str) -> str:
        """Return the option that makes a command of `dovecote init` apply to `schema`."""
        # Without it the command would install another schema, and the message would come again.
        return "" if schema == self.default else f" --schema {shlex.quote(schema)}"

    def steps(self) -> list[Migration]:
        """Return every step this version of Dovecote knows, in order."""
        after = _texts(self.package, "after")
        steps = []
        for name, text in _texts(self.package).items():
            number, _, said = name.partition("_")
            steps.append(Migration(int(number), said, text, after.get(name, "")))
        return sorted(steps, key=lambda step: step.version)

    def functions(self) -> dict[str, str]:
        """Return the text of each function by its name; a function follows those that it calls."""
        texts = _texts(self.package, "functions")
        for package, names in self.shared.items():
            others = _texts(package, "functions")
            texts |= {name: others[name] for name in names}
        calls = {
            # Sorted, so that the order is the same in every process.
            name: sorted(texts.keys() & set(re.findall(r"\{schema\}\.(\w+)\(", text)) - {name})
            for name, text in sorted(texts.items())
        }
        return {name: texts[name] for name in TopologicalSorter(calls).static_order()}

    def pieces(self, schema: str) -> list[tuple[int | None, str]]:
        """
        Return the SQL of an installation in its order, each piece with the version it belongs to.

        A database of that version or a newer one does without the piece. A piece without a
        version is part of every installation and every upgrade.
        """
        before, after = self._others(schema)
        ours = self.belongings()
        ledger = ours.fill(
            LEDGER, schema, before=before, after=after, empty=self.without_data(schema)
        )
        functions = "\n".join(fill(text, schema) for text in self.functions().values())
        steps = self.steps()
        return [
            (1, ledger.strip() + "\n"),
            *((step.version, step.render(schema)) for step in steps),
            (None, functions),
            *((step.version, fill(step.after, schema)) for step in steps if step.after),
            (None, ours.fill(ONE_OWNER, schema)),
            (None, ours.fill(NOTHING_FOR_PUBLIC, schema)),
        ]

    def script(self, schema: str, *, since: int = 0, grants: str = "") -> str:
        """
        Return the SQL statement from version `since` to the newest, and with `grants`.

        Raises:
            BadSettings: `since` is newer than any version that this Dovecote knows.
        """
        if since > (newest := self.steps()[-1].version):
            msg = f"there is no version {since}: the newest that this Dovecote knows is {newest}"
            raise BadSettings(msg)
        pieces = [
            text for version, text in self.pieces(schema) if version is None or version > since
        ]
        check = self.belongings().fill(BEHIND, schema, since=str(since)).strip() + "\n"
        steps = [*([check] if since else []), *pieces, *([grants] if grants else [])]
        executed = "\n".join(f"EXECUTE {quoted(each, 'dovecote_piece')};" for each in steps)
        return f"DO {quoted(_SCRIPT % executed, 'dovecote')};\n"

    def belongings(self) -> Belongings:
        """Return all that is made in the schema."""
        steps = self.steps()
        texts = [*(step.script for step in steps), *self.functions().values()]
        return Belongings.of(steps[0].name, texts)

    def install(self, conn: Connection, schema: str, *, grants: str = "") -> list[Migration]:
        """
        Apply the missing steps, all or none, and return them; then run `grants`.

        With any step, every function is replaced by the text of its file.

        Runs in a transaction of its own, or as part of the caller's open one. Two at once take
        turns.

        Raises:
            BadSettings: there is no such role, or the schema holds what others use.
            NotAllowed: the schema is another role's, and only its owner can grant rights in it.
            SchemaMissing: its tables are there, but their rows are not.
            SchemaTooNew: the database was upgraded by a newer Dovecote.
        """
        require_name(schema)
        for _ in range(_TURNS):
            try:
                return self._install(conn, schema, grants)
            except _MADE_MEANWHILE:
                # Somebody else has installed it, and we have waited for that.
                continue
            except errors.LockNotAvailable as error:
                said = str(error.diag.message_primary)
                if said.startswith("outbox: "):
                    raise
                msg = (
                    f"{said}; nothing was changed. Locks in schema {schema!r} are held by "
                    f"{lockers(conn, schema)}: run it again when these have ended"
                )
                raise DovecoteError(msg) from error
        return self._install(conn, schema, grants)

    def _install(self, conn: Connection, schema: str, grants: str) -> list[Migration]:
        with conn.transaction(), own_functions_only(conn), waiting_shortly(conn):
            require_seen(conn, schema, self.belongings().tables)
            cursor(conn).execute(self.belongings().fill(TURN, schema).encode())
            installed = self.version(conn, schema)
            self._refuse_newer(installed, schema)
            if not installed:
                self._refuse_without_data(conn, schema)
                self._refuse_beside_others(conn, schema)
            missing = [step for step in self.steps() if step.version > installed]
            if missing:
                cursor(conn).execute(self.script(schema, since=installed).encode())
            else:
                # An earlier version may have left some of it to the role that upgraded it.
                cursor(conn).execute(self.belongings().fill(ONE_OWNER, schema).encode())
            if grants:
                _grant(conn, schema, grants)
        return missing

    def version(self, conn: Connection, schema: str) -> int:
        """Return the version installed in `schema`; 0 if there is none."""
        found = self._in_ledger(conn, schema, INSTALLED)
        return found if isinstance(found, int) else 0

    def require(self, conn: Connection, schema: str) -> None:
        """
        Check that `schema` is installed at the version that this Dovecote needs.

        Raises:
            NotAllowed: row-level security hides some of its rows.
            SchemaMissing: it is missing or older; the message has the command that installs it.
            SchemaTooNew: it was upgraded by a newer Dovecote.
        """
        require_seen(conn, schema, self.belongings().tables)
        installed = self.version(conn, schema)
        self._refuse_newer(installed, schema)
        if not installed:
            self._refuse_without_data(conn, schema)
        if installed < (newest := self.steps()[-1].version):
            state = f"at version {installed}, not {newest}" if installed else "not installed"
            be = "are" if self.thing.startswith("tables") else "is"
            of = f"in schema {schema!r} of database {conn.info.dbname!r}"
            msg = f"the {self.thing} {of} {be} {state}; {self.advice(schema, installed=installed)}"
            raise SchemaMissing(msg)

    def _refuse_without_data(self, conn: Connection, schema: str) -> None:
        if self._in_ledger(conn, schema, EMPTIED):
            raise SchemaMissing(self.without_data(schema))

    def _in_ledger(self, conn: Connection, schema: str, query: str) -> object:
        """Return the answer to a query about the table of versions; None if there is no table."""
        text = self.belongings().fill(query, schema)
        try:
            with conn.transaction():
                row = cursor(conn).execute(text.encode(conn.info.encoding)).fetchone()
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return None
        return row[0] if row else None

    def without_data(self, schema: str) -> str:
        """Return the error for a schema that was restored without its data."""
        return (
            f"{sql.Identifier(schema, 'migrations').as_string()} is empty: {schema!r}, the schema "
            f"of the {self.thing}, was restored without its data. Restore that of all its "
            "tables but `events`; or, if there is nothing in it to keep, `DROP SCHEMA "
            f"{sql.Identifier(schema).as_string()} CASCADE` and {self.advice(schema)}"
        )

    def _refuse_beside_others(self, conn: Connection, schema: str) -> None:
        query = self.belongings().fill(FOUND, schema)
        row = cursor(conn).execute(query.encode()).fetchone()
        if row is not None and row[0] is not None:
            raise BadSettings(row[0].join(self._others(schema)))

    def _others(self, schema: str) -> tuple[str, str]:
        """
        Return the message's text before and after the names of foreign objects in the schema.
        """
        behind = (
            f"); give the {self.thing} a schema of their own, such as "
            f"`dovecote init {self.part} --schema {self.default}`"
        )
        return f"schema {schema!r} holds what others use (", behind

    def _refuse_newer(self, installed: int, schema: str) -> None:
        newest = self.steps()[-1].version
        if installed > newest:
            msg = (
                f"schema {schema!r} is at version {installed}, this Dovecote knows {newest}; "
                "upgrade the dovecote package"
            )
            raise SchemaTooNew(msg)


def _texts(package: str, folder: str = "") -> dict[str, str]:
    """Return the scripts in a folder of a package's `sql`, or in `sql` itself, by their names."""
    place = files(package) / "sql"
    if folder:
        place /= folder
    if not place.is_dir():
        return {}
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in place.iterdir()
        if file.name.endswith(".sql")
    }


@contextmanager
def waiting_shortly(conn: Connection) -> Iterator[None]:
    """
    Within a transaction, wait for locks of others for a while only; the error names who has them.
    """
    cursor(conn).execute(
        "SELECT pg_catalog.set_config('dovecote.lock_timeout',"
        " pg_catalog.current_setting('lock_timeout'), true),"
        " pg_catalog.set_config('lock_timeout', CASE pg_catalog.current_setting('lock_timeout')"
        f" WHEN '0' THEN '{PATIENCE}' ELSE pg_catalog.current_setting('lock_timeout') END, true)"
    )
    yield
    cursor(conn).execute(
        "SELECT set_config('lock_timeout', current_setting('dovecote.lock_timeout'), true)"
    )


@contextmanager
def own_functions_only(conn: Connection) -> Iterator[None]:
    """
    Within a transaction, look up functions and operators only where nobody else can make any.

    Names are sent as UTF-8, whatever encoding the caller's session uses.
    """
    cursor(conn).execute(
        "SELECT pg_catalog.set_config('dovecote.path',"
        " pg_catalog.current_setting('search_path'), true),"
        " pg_catalog.set_config('dovecote.encoding',"
        " pg_catalog.current_setting('client_encoding'), true)"
    )
    cursor(conn).execute(OWN_FUNCTIONS_ONLY.replace("SET", "SET LOCAL"))
    cursor(conn).execute("SET LOCAL client_encoding = 'UTF8'")
    yield
    # Restore it: this may be the caller's transaction, which goes on.
    cursor(conn).execute(
        "SELECT set_config('search_path', current_setting('dovecote.path'), true),"
        " set_config('client_encoding', current_setting('dovecote.encoding'), true)"
    )


def _grant(conn: Connection, schema: str, grants: str) -> None:
    row = (
        cursor(conn)
        .execute(
            "SELECT pg_has_role(nspowner, 'USAGE'), nspowner::regrole::text"
            " FROM pg_namespace WHERE nspname = %s",
            [schema],
        )
        .fetchone()
    )
    # Postgres itself only warns of grants that had no effect.
    if row is not None and not row[0]:
        msg = (
            f"schema {schema!r} belongs to role {row[1]}: run it as that role, or use --print-sql"
        )
        raise NotAllowed(msg)
    try:
        cursor(conn).execute(grants.encode())
    except errors.UndefinedObject as error:
        msg = f"{error.diag.message_primary}; create it first (CREATE ROLE … LOGIN)"
        raise BadSettings(msg) from error
