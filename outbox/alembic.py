"""The outbox in Alembic revisions: install it, remove it, and hide it from autogenerate."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from alembic import context, op
from sqlalchemy import MetaData, text

from outbox.schema import DEFAULT_SCHEMA, NOBODY, Roles, belongings, steps

IncludeName: TypeAlias = Callable[[str | None, str, Mapping[str, str | None]], bool]
"""Alembic's filter for autogenerate; it gets an object's name, kind, and its parents' names."""


def install(version: int, schema: str = DEFAULT_SCHEMA, *, roles: Roles = NOBODY) -> None:
    """
    Install the outbox in `upgrade()`, or upgrade it if it is older than `version`.

    An upgrade brings it to the newest version that this Dovecote knows, because the functions of
    the database are of that one. `roles` are granted what they need after an upgrade, and whenever
    `version` is the newest. Works online with any driver, and with `--sql`.

    Raises:
        BadSettings: this Dovecote knows no such version.
    """
    _execute(steps.install(version, schema, roles=roles))


def uninstall(schema: str = DEFAULT_SCHEMA) -> None:
    """
    Remove the outbox, in `downgrade()`; only what the outbox has made is dropped.

    Postgres refuses while there are events in it, or may be in the write-ahead log, and while
    views or other objects need it. Where these revisions migrate several schemas, each with a
    table of versions, the outbox stays until the last of them has gone back.
    """
    _execute(steps.uninstall(schema, versions=_versions()))


def _versions() -> steps.VersionTable:
    migration = op.get_context()
    heads = migration.get_current_heads()
    counting = set(heads)
    if heads and (environment := migration.environment_context) is not None:
        later = environment.script.iterate_revisions("heads", heads)
        counting |= {revision.revision for revision in later}
    names = filter(None, (migration.version_table_schema, migration.version_table))
    quote = migration.dialect.identifier_preparer.quote_identifier
    rows = [{"version_num": revision} for revision in sorted(counting)]
    return steps.VersionTable(migration.version_table, ".".join(map(quote, names)), rows)


def leave_alone(
    schemas: Collection[str] = (DEFAULT_SCHEMA,), *, and_ask: IncludeName | None = None
) -> IncludeName:
    """
    Return an `include_name` for `context.configure` that hides the outbox from autogenerate.

    Without it, and with `include_schemas=True`, autogenerate proposes to drop the outbox's tables.
    Where one of `schemas` is the role's default schema, which Alembic calls None, only the tables
    that `target_metadata` has are compared there. `and_ask` decides about everything else.
    """

    def include_name(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        schema = name if kind == "schema" else parents.get("schema_name")
        if schema in schemas:
            return False
        table = name if kind == "table" else parents.get("table_name")
        if schema is None and table is not None and _left_alone(table, schemas):
            return False
        return and_ask is None or and_ask(name, kind, parents)

    return include_name


def _left_alone(table: str, schemas: Collection[str]) -> bool:
    """Return whether a table of the role's default schema is left alone."""
    try:
        migration = context.get_context()
    except (NameError, AttributeError):  # the latter if there was one before
        # There is no `env.py`, and so nobody says what the default schema is.
        return re.sub(r"_[0-9]+$", "", table) in belongings().tables
    default = migration.dialect.default_schema_name
    if default not in schemas:
        return False
    given = migration.opts.get("target_metadata") or ()
    known = [given] if isinstance(given, MetaData) else given
    return not any(
        each.name == table and each.schema in {None, default}
        for metadata in known
        for each in metadata.tables.values()
    )


def _execute(statement: str) -> None:
    migration = op.get_context()
    if migration.as_sql:
        # As it is: a dialect may double each per cent sign, for its driver's placeholders.
        migration.impl.static_output(statement + migration.impl.command_terminator)
    else:
        # A colon would begin a bind parameter.
        op.execute(text(statement.replace(":", r"\:")))
