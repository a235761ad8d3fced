"""
The schema's migrations as one SQL statement, for migration tools of the callers' own.

One statement, because not every driver takes several; one that looks first at what is there, so
that it may run after `dovecote init`, before it, or again.
"""

from outbox import schema as outbox_schema
from outbox.errors import BadSettings

_INSTALL = """DO $dovecote$
DECLARE
    installed int := 0;
BEGIN
    -- Two at once take turns.
    PERFORM pg_advisory_xact_lock({lock});
    IF to_regclass('{schema}.migrations') IS NOT NULL THEN
        EXECUTE 'SELECT coalesce(max(version), 0) FROM {schema}.migrations' INTO installed;
    END IF;
{steps}
{grants}
END
$dovecote$"""

_STEP = """    IF installed < {version} THEN
        EXECUTE $dovecote_{version}$
{script}
$dovecote_{version}$;
    END IF;"""

_GRANTS = """    EXECUTE $dovecote_roles${grants}$dovecote_roles$;"""

_UNINSTALL = """DO $dovecote$
DECLARE
    waiting boolean := false;
BEGIN
    IF to_regclass('{schema}.events') IS NOT NULL THEN
        -- Writers that are under way finish first, and their events count.
        LOCK TABLE {schema}.events IN ACCESS EXCLUSIVE MODE;
        EXECUTE 'SELECT EXISTS (SELECT FROM {schema}.events)' INTO waiting;
    END IF;
    IF waiting THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'outbox: there are events in {schema}, and they may not be published yet',
            HINT = 'Stop the writers, see with `dovecote status` that nothing waits, then '
                'TRUNCATE {schema}.events and try again.';
    END IF;
    DROP SCHEMA IF EXISTS {schema} CASCADE;
END
$dovecote$"""


def install(
    version: int,
    schema: str = outbox_schema.DEFAULT_SCHEMA,
    *,
    roles: outbox_schema.Roles = outbox_schema.NOBODY,
) -> str:
    """
    Return the SQL statement that brings `schema` to `version`; nothing if it is there already.

    `roles` are granted what they need with the newest version, for which that is known.

    Raises:
        BadSettings: this Dovecote knows no such version.
    """
    known = [step.version for step in outbox_schema.migrations()]
    if version not in known:
        msg = f"there is no version {version} of the outbox's schema; there are {known}"
        raise BadSettings(msg)
    steps = [_step(step, schema) for step in known if step <= version]
    grants = roles.grants(schema) if version == known[-1] else ""
    template = _INSTALL.replace("{lock}", str(outbox_schema.LOCK))
    return (
        _named(template, schema)
        .replace("{steps}", "\n".join(steps))
        .replace("{grants}", _GRANTS.replace("{grants}", grants) if grants else "")
    )


def _step(version: int, schema: str) -> str:
    script = outbox_schema.script(schema, since=version - 1, until=version)
    return _STEP.replace("{script}", script).replace("{version}", str(version))


def uninstall(schema: str = outbox_schema.DEFAULT_SCHEMA) -> str:
    """Return the SQL statement that drops `schema`, and refuses to while events are in it."""
    return _named(_UNINSTALL, schema)


def _named(template: str, schema: str) -> str:
    # In the statements it stands in quotes too, in `to_regclass('"outbox".migrations')`.
    if "'" in schema:
        msg = f"schema {schema!r}: a name with a quote in it takes `dovecote init`"
        raise BadSettings(msg)
    return outbox_schema.fill(template, schema)
