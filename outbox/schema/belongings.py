"""
Which objects of a schema are ours: find foreign ones first, and check that all rows are visible.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from psycopg import Connection, sql

from outbox.errors import NotAllowed
from outbox.postgres.ours import cursor
from outbox.schema.templates import array, fill, literal

_FUNCTION = re.compile(r"FUNCTION (?:IF EXISTS )?\{schema\}\.(\w+)\(((?:[^()]|\(\))*)\)")
# The name of a table that a loop makes goes on with its number.
_RELATION = re.compile(
    r"CREATE (?:UNLOGGED )?(TABLE|SEQUENCE) (?:IF NOT EXISTS )?\{schema\}\.(\w+)(?![\w%])"
)

# The server's own names of types.
_FULLY = {"int": "integer", "timestamptz": "timestamp with time zone"}

OURS = "proname || '(' || oidvectortypes(proargtypes) || ')' = ANY "
"""The condition that a function in `pg_proc` is one of `Belongings.functions`, which follow."""


@dataclass(frozen=True, slots=True)
class Belongings:
    """All that the steps and functions of one part make in a schema."""

    first: str
    """The name of the first step, which no other part has."""
    tables: tuple[str, ...]
    sequences: tuple[str, ...]
    functions: tuple[str, ...]
    """Names with the types of their arguments, as an earlier version had them, too."""

    @classmethod
    def of(cls, first: str, texts: Iterable[str]) -> "Belongings":
        """Return what these texts make, in their order."""
        text = "\n".join(texts)
        made = [*dict.fromkeys(_RELATION.findall(text))]
        functions = (f"{name}({_types(given)})" for name, given in _FUNCTION.findall(text))
        return cls(
            first,
            ("migrations", *(name for kind, name in made if kind == "TABLE")),
            tuple(name for kind, name in made if kind == "SEQUENCE"),
            tuple(dict.fromkeys(functions)),
        )

    def fill(self, text: str, schema: str, **others: str) -> str:
        """
        Return a text with the parts of this module in place of their names, for `schema`.

        `{installed}` is the query for the version that is installed there, and `{tables}`,
        `{sequences}` and `{functions}` are arrays of our names.
        """
        for name, part in _PARTS.items():
            text = text.replace(f"{{{name}}}", part)
        return fill(
            text,
            schema,
            installed=fill(INSTALLED, schema, first=literal(self.first)),
            first=literal(self.first),
            name=literal(schema),
            main=self.tables[1],
            tables=array(self.tables),
            sequences=array(self.sequences),
            functions=array(self.functions),
            **others,
        )

    def exactly(self, grants: str) -> str:
        """
        Return `grants` with the functions' arguments, since others may have made namesakes.
        """
        # A new version of a function follows the one that it replaces.
        known = {each.partition("(")[0]: each for each in self.functions}
        return re.sub(
            r"(?<=ON FUNCTION )[^;]*(?= TO )",
            lambda it: re.sub(r"(?<=\{schema\}\.)\w+", lambda name: known[name[0]], it[0]),
            grants,
        )


def _types(arguments: str) -> str:
    """Return the types in a function's list of arguments, which may have names and defaults."""
    each = (re.sub(r" DEFAULT .*", "", one.strip()) for one in arguments.split(",") if one.strip())
    types = (re.sub(r'^(?:\w+|"\w+") (?=\w)', "", one) for one in each)
    return ", ".join(re.sub(r"^\w+", lambda it: _FULLY.get(it[0], it[0]), one) for one in types)


# The version of a schema; no row where its ledger is empty or another tool's, whatever columns
# that has.
INSTALLED = """SELECT max((to_jsonb(m) ->> 'version')::int)
           FILTER (WHERE to_jsonb(m) ->> 'version' ~ '^[0-9]{1,9}$')
      FROM {schema}.migrations AS m
    HAVING bool_or(to_jsonb(m) @> jsonb_build_object('version', 1, 'name', {first}))"""

# Every object in a schema depends on the schema, whatever its kind.
_CONTENTS = """pg_depend
     WHERE refclassid = 'pg_namespace'::regclass
       AND refobjid = (SELECT oid FROM pg_namespace WHERE nspname = {name})"""

# Where PUBLIC has rights on the schema, it is there for others.
FOUND = """
SELECT string_agg(what, ', ' ORDER BY what) FROM (
    SELECT pg_describe_object(classid, objid, 0) AS what FROM {contents}
    UNION
    SELECT 'rights of PUBLIC' FROM pg_namespace, aclexplode(nspacl) AS acl
     WHERE nspname = {name} AND acl.grantee = 0
     ORDER BY 1 LIMIT 5) AS found
"""

# A dump without data leaves our tables, and nothing that tells their version.
EMPTIED = """
SELECT to_regclass($name${schema}.{main}$name$) IS NOT NULL
   AND NOT EXISTS (SELECT FROM {schema}.migrations)
"""

LEDGER = """
DO $alone$
DECLARE
    others CONSTANT text := ({found});
    found int;
    is_empty boolean;
BEGIN
    IF to_regclass($name${schema}.migrations$name$) IS NOT NULL THEN
        EXECUTE $ask${installed}$ask$ INTO found;
        EXECUTE $ask${emptied}$ask$ INTO is_empty;
    END IF;
    IF found IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format(
            $say${schema} is at version %s: print what came after that one (--since %s)$say$,
            found, found);
    ELSIF is_empty THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = $say${empty}$say$;
    ELSIF others IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE =
            $say${before}$say$ || others || $say${after}$say$;
    END IF;
END
$alone$;

CREATE SCHEMA IF NOT EXISTS {schema};
REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;

CREATE TABLE {schema}.migrations (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""

PATIENCE = "20s"
"""How long an installation waits for a lock of others."""

# Two installations at once take turns. The lock is on our own table, because any role can take an
# advisory lock. A role that cannot change the table meets a better error later.
TURN = """
DO $turn$
BEGIN
    IF to_regclass($name${schema}.migrations$name$) IS NOT NULL
            AND has_table_privilege($name${schema}.migrations$name$, 'UPDATE') THEN
        LOCK TABLE {schema}.migrations IN SHARE ROW EXCLUSIVE MODE;
    END IF;
EXCEPTION WHEN lock_not_available THEN
    RAISE lock_not_available USING MESSAGE =
        'outbox: another session installs or upgrades this schema, or keeps its table locked: '
        || coalesce((
            SELECT string_agg(format('session %s of role %s (%s)', l.pid, a.usename,
                                     a.application_name), ', ')
              FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid)
             WHERE l.granted AND l.relation = $name${schema}.migrations$name$::regclass
               AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock',
                              'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')),
            'it has just ended') || '; nothing was changed. Run it again when it has ended';
END
$turn$;
"""

# Runs before the steps after a given version. Applied to an older schema, those steps would leave
# a gap for good, because only the newest version is recorded; and nobody would notice.
BEHIND = """
DO $behind$
DECLARE
    found CONSTANT int := coalesce(({installed}), 0);
BEGIN
    IF found <> {since} THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format(
            'this is what came after version {since}, and the schema is at version %s: print '
            'what came after that one (--since %s); nothing was changed', found, found);
    END IF;
END
$behind$;
"""

# The relations of ours that are there. Leaves are numbered, and inherit from a table of ours.
_RELATIONS = """SELECT c.oid, c.relkind FROM pg_class AS c
         WHERE c.relnamespace = here
           AND (c.relkind IN ('r', 'p') AND c.relname = ANY ({tables})
                OR c.relkind = 'S' AND c.relname = ANY ({sequences})
                OR EXISTS (SELECT FROM pg_inherits AS i, pg_class AS p
                            WHERE i.inhrelid = c.oid AND p.oid = i.inhparent
                              AND p.relnamespace = here AND p.relname = ANY ({tables})
                              AND c.relname ~ ('^' || p.relname || '_[0-9]+$')))"""

_PROCEDURES = """SELECT oid FROM pg_proc
         WHERE pronamespace = here AND {ours}({functions})"""

# Our functions run as their owner and call each other, so all of them need the same one. The role
# that runs an upgrade owns at first the things that it makes, and may be a superuser or a member
# of that owner.
ONE_OWNER = """
DO $owner$
DECLARE
    here  CONSTANT oid := (SELECT oid FROM pg_namespace WHERE nspname = {name});
    owner CONSTANT oid := (SELECT relowner FROM pg_class
                            WHERE oid = $name${schema}.migrations$name$::regclass);
    maker CONSTANT oid := (SELECT oid FROM pg_roles WHERE rolname = current_user);
    one text;
BEGIN
    IF maker = owner THEN
        RETURN;
    END IF;
    FOR one IN
        SELECT format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                      c.oid::regclass)
          FROM ({relations}) AS ours JOIN pg_class AS c USING (oid) WHERE c.relowner = maker
        UNION ALL
        SELECT format('FUNCTION %s', p.oid::regprocedure)
          FROM ({procedures}) AS ours JOIN pg_proc AS p USING (oid) WHERE p.proowner = maker
    LOOP
        EXECUTE format('ALTER %s OWNER TO %s', one, owner::regrole);
    END LOOP;
END
$owner$;
"""

# Runs after every step, so that PUBLIC has no rights to what it made, whatever the default
# privileges say. Objects that others have put into the schema since then are theirs.
NOTHING_FOR_PUBLIC = """
DO $nobody$
DECLARE
    here CONSTANT oid := (SELECT oid FROM pg_namespace WHERE nspname = {name});
    one text;
BEGIN
    FOR one IN
        WITH ours AS ({relations})
        SELECT format('%s %s', CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                      oid::regclass) FROM ours
        UNION ALL
        -- The sequences of their columns.
        SELECT format('SEQUENCE %s', d.objid::regclass)
          FROM pg_depend AS d, pg_class AS s
         WHERE d.classid = 'pg_class'::regclass AND d.objid = s.oid AND s.relkind = 'S'
           AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
           AND d.refobjid IN (SELECT oid FROM ours)
        UNION ALL
        SELECT format('FUNCTION %s', oid::regprocedure)
          FROM ({procedures}) AS made
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', one);
    END LOOP;
END
$nobody$;
"""

# Without CASCADE, so that nothing of others goes with it.
DROP = """
    SELECT string_agg(oid::regclass::text, ', ') FILTER (WHERE relkind <> 'S'),
           string_agg(oid::regclass::text, ', ') FILTER (WHERE relkind = 'S')
      INTO our_tables, our_sequences
      FROM ({relations}) AS ours;
    SELECT string_agg(oid::regprocedure::text, ', ') INTO our_functions
      FROM ({procedures}) AS ours;
    EXECUTE concat_ws('; ', 'DROP TABLE ' || our_tables, 'DROP SEQUENCE ' || our_sequences,
                      'DROP FUNCTION ' || our_functions);
    IF NOT EXISTS (SELECT FROM {contents}) THEN
        DROP SCHEMA {schema};
    END IF;
"""

_PARTS = {
    "drop": DROP,
    "relations": _RELATIONS,
    "procedures": _PROCEDURES,
    "ours": OURS,
    "found": FOUND,
    "contents": _CONTENTS,
    "emptied": EMPTIED,
}


# Policies hide rows from the owner only if they are forced, and never from superusers and roles
# with BYPASSRLS.
_HIDDEN = """
SELECT c.relname::text FROM pg_catalog.pg_class AS c, pg_catalog.pg_namespace AS n,
       pg_catalog.pg_roles AS o
 WHERE n.oid = c.relnamespace AND n.nspname = %s AND o.oid = c.relowner AND c.relrowsecurity
   AND pg_catalog.regexp_replace(c.relname, '_[0-9]+$', '') = ANY (%s)
   AND (pg_catalog.row_security_active(c.oid)
        OR c.relforcerowsecurity AND NOT (o.rolsuper OR o.rolbypassrls))
 ORDER BY c.relname LIMIT 1
"""


def showing(schema: str, table: str | None = None) -> str:
    """Return what to do about row-level security on one table of ours, or on any of them."""
    name = f"{sql.Identifier(schema).as_string()}.…" if table is None else ""
    name = name or sql.Identifier(schema, str(table)).as_string()
    return (
        "what it hides would be lost, or count as published: as the owner, run "
        f"`ALTER TABLE {name} DISABLE ROW LEVEL SECURITY`; who may read there, rights say already"
    )


def require_seen(conn: Connection, schema: str, tables: Iterable[str]) -> None:
    """
    Check that this role sees every row of `tables`, and so do our functions, as their owner.

    Raises:
        NotAllowed: row-level security may hide some.
    """
    row = cursor(conn).execute(_HIDDEN, [schema, list(tables)]).fetchone()
    if row is not None:
        msg = f"row-level security is on for table {row[0]} of schema {schema!r}; "
        raise NotAllowed(msg + showing(schema, row[0]))
