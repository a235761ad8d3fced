"""
Which objects of a schema are ours: find foreign ones first, and check that all rows are visible.
"""

from psycopg import Connection, sql

from outbox.errors import NotAllowed
from outbox.postgres.ours import cursor

# Every object in a schema depends on the schema, whatever its kind.
FOUND = """
SELECT string_agg(what, ', ' ORDER BY what) FROM (
    SELECT pg_describe_object(classid, objid, 0) AS what FROM pg_depend
     WHERE refclassid = 'pg_namespace'::regclass
       AND refobjid = (SELECT oid FROM pg_namespace WHERE nspname = {name})
     ORDER BY 1 LIMIT 5) AS found
"""

LEDGER = """
CREATE SCHEMA IF NOT EXISTS {schema};

DO $alone$
DECLARE
    others text;
    found int;
BEGIN
    IF to_regclass($name${schema}.migrations$name$) IS NULL THEN
        others := ({found});
        IF others IS NOT NULL THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE =
                $say${before}$say$ || others || $say${after}$say$;
        END IF;
    ELSE
        EXECUTE $ask$SELECT max(version) FROM {schema}.migrations$ask$ INTO found;
        IF found IS NULL THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = $say${empty}$say$;
        END IF;
        RAISE object_not_in_prerequisite_state USING MESSAGE = format(
            $say${schema} is at version %s: print what came after that one (--since %s)$say$,
            found, found);
    END IF;
END
$alone$;

REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;

CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""

# Runs before the steps after a given version. Applied to an older schema, those steps would leave
# a gap for good, because only the newest version is recorded; and nobody would notice.
BEHIND = """
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

# Runs after every step, so that PUBLIC has no rights to what it made, whatever the default
# privileges say. Objects that others have put into the schema since then are theirs.
NOTHING_FOR_PUBLIC = """
DO $nobody$
DECLARE
    here CONSTANT oid := (SELECT oid FROM pg_namespace WHERE nspname = {name});
    ours CONSTANT text[] := {ours};
    one text;
BEGIN
    FOR one IN
        SELECT format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                      c.oid::regclass)
          FROM pg_class AS c
         WHERE c.relnamespace = here AND c.relkind IN ('r', 'S')
           AND (c.relname = ANY (ours)
                -- The leaves of a table, and the sequences of its columns.
                OR EXISTS (SELECT FROM pg_inherits AS i, pg_class AS p
                            WHERE i.inhrelid = c.oid AND p.oid = i.inhparent
                              AND p.relname = ANY (ours))
                OR EXISTS (SELECT FROM pg_depend AS d, pg_class AS p
                            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                              AND d.refclassid = 'pg_class'::regclass AND p.oid = d.refobjid
                              AND d.deptype IN ('a', 'i') AND p.relname = ANY (ours)))
        UNION ALL
        SELECT format('FUNCTION %s', p.oid::regprocedure) FROM pg_proc AS p
         WHERE p.pronamespace = here AND p.proname = ANY (ours)
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', one);
    END LOOP;
END
$nobody$;
"""


# Policies hide rows from the owner only if they are forced, and never from superusers and roles
# with BYPASSRLS.
_HIDDEN = """
SELECT c.relname::text FROM pg_catalog.pg_class AS c, pg_catalog.pg_namespace AS n,
       pg_catalog.pg_roles AS o
 WHERE n.oid = c.relnamespace AND n.nspname = %s AND o.oid = c.relowner AND c.relrowsecurity
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


def require_seen(conn: Connection, schema: str) -> None:
    """
    Check that this role sees every row, and so do the functions, which run as their owner.

    Raises:
        NotAllowed: row-level security may hide some.
    """
    row = cursor(conn).execute(_HIDDEN, [schema]).fetchone()
    if row is not None:
        msg = f"row-level security is on for table {row[0]} of schema {schema!r}; "
        raise NotAllowed(msg + showing(schema, row[0]))
