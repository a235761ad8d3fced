"""`dovecote init inbox`: install or upgrade the inbox, or print the SQL that does."""

from typing import Annotated

from dedup.inbox import schema as inbox_schema
from dovecote.cli.flags import Flag
from dovecote.cli.init.installing import (
    DsnOption,
    PrintSqlOption,
    SchemaOption,
    SinceVersionOption,
    connected,
    report,
    require_printing,
    whereabouts,
)


def inbox(
    *,
    dsn: DsnOption = "",
    schema: SchemaOption = inbox_schema.DEFAULT_SCHEMA,
    print_sql: PrintSqlOption = False,
    since: SinceVersionOption = 0,
    consumer_role: Annotated[
        list[str] | None,
        Flag(metavar="ROLE", help="Let this role consume, and no more; can be repeated."),
    ] = None,
    waiter_role: Annotated[
        list[str] | None,
        Flag(metavar="ROLE", help="Let this role wait for effects; can be repeated."),
    ] = None,
) -> None:
    """
    Install the inbox of consumers, or upgrade it.

    The upgrade is to this version of Dovecote; a second run changes nothing.

    Example: dovecote init inbox --dsn "host=db.internal dbname=shop user=owner"

    With a role: dovecote init inbox --consumer-role billing

    For another migration tool: dovecote init inbox --print-sql > 0042_inbox.sql
    """
    require_printing(since, print_sql=print_sql)
    roles, waiters = consumer_role or [], waiter_role or []
    if print_sql:
        script = inbox_schema.script(schema, since=since, consumers=roles, waiters=waiters)
        print(script, end="")
        return
    with connected(dsn) as conn:
        applied = inbox_schema.install(conn, schema, consumers=roles, waiters=waiters)
        where = whereabouts(conn, schema)
    report(applied, {"consumer": roles, "waiter": waiters}, f"the inbox is up to date in {where}")
