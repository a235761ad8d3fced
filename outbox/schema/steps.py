"""
The schema's migrations as one SQL statement, for migration tools that callers already use.

It is one statement because not every driver takes several. It looks first at what is installed, so
it may run after `dovecote init outbox`, before it, or again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outbox import schema as outbox_schema
from outbox.errors import BadSettings
from outbox.schema.belongings import PATIENCE, TURN
from outbox.schema.holds import CAPTURE
from outbox.schema.templates import array, literal, quoted

_INSTALL = """
DECLARE
    installed int;
    before CONSTANT text := pg_catalog.current_setting('lock_timeout');
    path CONSTANT text := pg_catalog.current_setting('search_path');
BEGIN
    -- Others may have functions on the path that fit better than Postgres's own.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF before = '0' THEN
        PERFORM set_config('lock_timeout', {patience}, true);
    END IF;
    -- Two at once take turns: the second one waits here for a schema that the first one makes.
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name}) THEN
        BEGIN
            CREATE SCHEMA IF NOT EXISTS {schema};
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
    EXECUTE {taking};
    IF to_regclass($name${schema}.migrations$name$) IS NOT NULL THEN
        EXECUTE $ask${installed}$ask$ INTO installed;
    END IF;
    installed := coalesce(installed, 0);
    IF installed < {version} THEN
{steps}
    END IF;
{grants}
    PERFORM set_config('lock_timeout', before, true);
    PERFORM set_config('search_path', path, true);
END
"""

_UNINSTALL = """
DECLARE
    installed int;
    is_empty boolean;
    waiting boolean;
    place text := 'table';
    slots text;
    here CONSTANT oid := (SELECT oid FROM pg_namespace WHERE nspname = {name});
    publication CONSTANT text := 'dovecote_' || here;
    our_tables text;
    our_sequences text;
    our_functions text;
    other regclass;
    counts boolean;
    others text;
    is_free boolean;
    before CONSTANT text := pg_catalog.current_setting('lock_timeout');
    path CONSTANT text := pg_catalog.current_setting('search_path');
    mine CONSTANT regclass := pg_catalog.to_regclass({own});
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF before = '0' THEN
        PERFORM set_config('lock_timeout', {patience}, true);
    END IF;
    -- Everyone that changes the capture takes turns. An older schema has none.
    IF to_regprocedure($name${schema}.hold(text)$name$) IS NOT NULL THEN
        EXECUTE $ask$SELECT {schema}.hold({turn})$ask$ INTO is_free;
        IF NOT is_free THEN
            RAISE lock_not_available USING MESSAGE =
                $say$outbox: another session changes the capture of {schema}$say$
                || '; nothing was dropped. Run it again when that has ended';
        END IF;
    END IF;
    IF to_regclass($name${schema}.migrations$name$) IS NOT NULL THEN
        EXECUTE $ask${installed}$ask$ INTO installed;
        EXECUTE $ask${emptied}$ask$ INTO is_empty;
    END IF;
    IF is_empty THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = $say${empty}$say$;
    ELSIF installed IS NULL THEN
        RAISE NOTICE $say$outbox: there is none in {schema}; nothing was dropped$say$;
        PERFORM set_config('search_path', path, true);
        RETURN;
    END IF;
    -- The last of several that have installed it takes it away.
    FOR other IN
        SELECT c.oid FROM pg_class AS c, pg_namespace AS n
         WHERE c.relname = {ledger} AND c.relkind IN ('r', 'p')
           AND n.oid = c.relnamespace AND n.nspname <> ALL ({without})
           AND c.oid IS DISTINCT FROM mine
           AND has_table_privilege(c.oid, 'SELECT')
    LOOP
        EXECUTE format($ask$SELECT EXISTS (SELECT FROM %s AS m
                              WHERE to_jsonb(m) @> ANY ({rows}))$ask$, other) INTO counts;
        IF counts THEN
            others := concat_ws(', ', others, other);
        END IF;
    END LOOP;
    IF others IS NOT NULL THEN
        RAISE WARNING $say$outbox: {schema} stays, for migrations elsewhere count on it: %$say$,
            others;
        PERFORM set_config('search_path', path, true);
        RETURN;
    END IF;
    -- Writers that are under way finish first, and their events count.
    LOCK TABLE {schema}.events IN ACCESS EXCLUSIVE MODE;
    EXECUTE $ask$SELECT EXISTS (SELECT FROM {schema}.events)$ask$ INTO waiting;
    IF waiting THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = $say$outbox: there are events in {schema}, and they may not be $say$
                || 'published yet',
            HINT = 'Stop the writers, see with `dovecote relay status` that nothing waits, then '
                || $say$TRUNCATE {schema}.events and try again.$say$;
    END IF;
    IF to_regclass($name${schema}.reading$name$) IS NOT NULL THEN
        EXECUTE $ask$SELECT state FROM {schema}.reading$ask$ INTO place;
    END IF;
    SELECT string_agg(s.slot_name, ', ' ORDER BY s.slot_name) INTO slots
      FROM pg_replication_slots AS s, pg_database AS d
     WHERE d.datname = current_database() AND s.database = d.datname
       AND s.slot_name ~ ('^dovecote_' || d.oid || '_' || here || '(_[0-9]+_of_[0-9]+)?$');
    -- What is unpublished in the log is not to be seen from here, and a slot that stays keeps it
    -- for ever.
    IF place IS DISTINCT FROM 'table' OR slots IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = $say$outbox: events of {schema} may be in the write-ahead log, and not $say$
                || 'be published yet' || coalesce('; it is held by ' || slots, ''),
            HINT = $say$Run `dovecote init outbox --capture table{place}`, and the relays $say$
                || 'until they have left the log and dropped their slots, then try again.';
    END IF;
    IF EXISTS (SELECT FROM pg_publication WHERE pubname = publication) THEN
        EXECUTE 'DROP PUBLICATION ' || quote_ident(publication);
    END IF;
{drop}
    PERFORM set_config('lock_timeout', before, true);
    PERFORM set_config('search_path', path, true);
EXCEPTION WHEN lock_not_available THEN
    GET STACKED DIAGNOSTICS others = MESSAGE_TEXT;
    RAISE lock_not_available USING MESSAGE = others, HINT =
        'nothing was dropped; locks in the schema are held by ' || coalesce((
            SELECT string_agg(DISTINCT format('session %s of role %s (%s)', l.pid, a.usename,
                                              a.application_name), ', ')
              FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
              LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
             WHERE l.granted AND l.pid <> pg_backend_pid() AND c.relnamespace = here),
            'sessions that have ended');
WHEN dependent_objects_still_exist THEN
    GET STACKED DIAGNOSTICS others = PG_EXCEPTION_DETAIL;
    RAISE dependent_objects_still_exist USING
        MESSAGE = $say$outbox: others have made objects that need {schema}; nothing was $say$
            || 'dropped',
        DETAIL = others,
        HINT = 'Drop those objects first, and try again.';
END
"""


class VersionTable(NamedTuple):
    """A migration tool's table of what it has applied, of which a database may have several."""

    table: str
    own: str
    """The one that is being migrated, as SQL names it."""
    rows: Sequence[Mapping[str, str]]
    """Any of these is in another one that has applied the installation of the outbox."""
    without: Sequence[str] = ()
    """The schemas in which a table says so, although its migrations have installed nothing."""


def install(
    version: int,
    schema: str = outbox_schema.DEFAULT_SCHEMA,
    *,
    roles: outbox_schema.Roles = outbox_schema.NOBODY,
) -> str:
    """
    Return the SQL statement that installs the outbox in `schema`, or upgrades it.

    A schema that is at `version` already, or at a newer one, stays as it is. Otherwise the
    statement brings it to the newest version that this Dovecote knows: the functions are of that.
    `roles` are granted what they need after an upgrade, and whenever `version` is the newest.

    Raises:
        BadSettings: this Dovecote knows no such version.
    """
    known = [step.version for step in outbox_schema.migrations()]
    if version not in known:
        msg = f"there is no version {version} of the outbox's schema; there are {known}"
        raise BadSettings(msg)
    steps = [_step(*piece) for piece in outbox_schema.pieces(schema)]
    grants = roles.grants(schema)
    granting = [f"EXECUTE {quoted(grants, 'dovecote_roles')};"] if grants else []
    newest = version == known[-1]
    filled = outbox_schema.belongings().fill(
        _INSTALL,
        schema,
        patience=literal(PATIENCE),
        taking=quoted(outbox_schema.belongings().fill(TURN, schema), "dovecote_turn"),
        version=str(version),
        steps="\n".join(steps if newest else [*steps, *granting]),
        grants="\n".join(granting if newest else []),
    )
    return f"DO {quoted(filled, 'dovecote')}"


def _step(version: int | None, script: str) -> str:
    execute = f"EXECUTE {quoted(script, 'dovecote_piece')};"
    return execute if version is None else f"IF installed < {version} THEN\n{execute}\nEND IF;"


def uninstall(
    schema: str = outbox_schema.DEFAULT_SCHEMA, *, versions: VersionTable | None = None
) -> str:
    """
    Return the SQL statement that drops what the steps made, and `schema` if it is empty then.

    It refuses while events are in the table, or may be in the write-ahead log, and while objects
    of others need those of the outbox. It drops nothing while other tables like `versions` say
    that their migrations have installed the outbox.
    """
    tool = versions or VersionTable("", "", [])
    rows = ", ".join(literal(json.dumps(row)) for row in tool.rows)
    filled = outbox_schema.belongings().fill(
        _UNINSTALL,
        schema,
        turn=literal(CAPTURE),
        patience=literal(PATIENCE),
        place=outbox_schema.place(schema),
        empty=outbox_schema.emptied(schema),
        ledger=literal(tool.table),
        own=literal(tool.own),
        rows=f"ARRAY[{rows}]::jsonb[]",
        without=array(tool.without),
    )
    return f"DO {quoted(filled, 'dovecote')}"
