"""`dovecote init push`: install or upgrade the tables of push, or print the SQL that does."""

from typing import Annotated

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
from dovecote.push.store import schema as push_schema


def push(
    *,
    dsn: DsnOption = "",
    schema: SchemaOption = push_schema.DEFAULT_SCHEMA,
    print_sql: PrintSqlOption = False,
    since: SinceVersionOption = 0,
    push_role: Annotated[
        list[str] | None,
        Flag(metavar="ROLE", help="Let this role push, and no more; can be repeated."),
    ] = None,
) -> None:
    """
    Install the tables of `dovecote push`, or upgrade them.

    The upgrade is to this version of Dovecote; a second run changes nothing.

    Example: dovecote init push --dsn "host=db.internal dbname=shop user=owner"

    With a role: dovecote init push --push-role pusher

    For another migration tool: dovecote init push --print-sql > 0042_push.sql
    """
    require_printing(since, print_sql=print_sql)
    roles = push_role or []
    if print_sql:
        print(push_schema.script(schema, since=since, roles=roles), end="")
        return
    with connected(dsn) as conn:
        applied = push_schema.install(conn, schema, roles=roles)
        where = whereabouts(conn, schema)
    report(
        applied, {"process that pushes": roles}, f"the tables of push are up to date in {where}"
    )
