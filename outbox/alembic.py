"""The outbox in Alembic revisions: install it, remove it, and hide it from autogenerate."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from alembic import op
from sqlalchemy import text

from outbox.schema import DEFAULT_SCHEMA, NOBODY, Roles, steps

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
    _execute(steps.uninstall(schema, ledger=_ledger()))


def _ledger() -> steps.Ledger:
    context = op.get_context()
    heads = context.get_current_heads()
    counting = set(heads)
    if heads and (environment := context.environment_context) is not None:
        later = environment.script.iterate_revisions("heads", heads)
        counting |= {revision.revision for revision in later}
    names = filter(None, (context.version_table_schema, context.version_table))
    quote = context.dialect.identifier_preparer.quote_identifier
    rows = [{"version_num": revision} for revision in sorted(counting)]
    return steps.Ledger(context.version_table, ".".join(map(quote, names)), rows)


def leave_alone(
    schemas: Collection[str] = (DEFAULT_SCHEMA,), *, and_ask: IncludeName | None = None
) -> IncludeName:
    """
    Return an `include_name` for `context.configure` that hides the outbox from autogenerate.

    Without it, and with `include_schemas=True`, autogenerate proposes to drop the outbox's tables.
    `and_ask` decides about everything else.
    """

    def include_name(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        ours = name if kind == "schema" else parents.get("schema_name")
        if ours in schemas:
            return False
        return and_ask is None or and_ask(name, kind, parents)

    return include_name


def _execute(statement: str) -> None:
    context = op.get_context()
    if context.as_sql:
        # As it is: a dialect may double each per cent sign, for its driver's placeholders.
        context.impl.static_output(statement + context.impl.command_terminator)
    else:
        # A colon would begin a bind parameter.
        op.execute(text(statement.replace(":", r"\:")))
