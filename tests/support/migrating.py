"""Installations of the outbox, seen from the outside."""

from typing import Any

import psycopg

from outbox import Event, schema, write

EVENT = Event(topic="orders", type="OrderPlaced", source="/shop")
NEWEST = schema.migrations()[-1].version


def installed(dsn: str, name: str = "outbox") -> int:
    with psycopg.connect(dsn) as conn:
        return schema.version(conn, name)


def put(dsn: str, name: str = "outbox") -> None:
    """Write an event, which needs a working outbox."""
    with psycopg.connect(dsn) as conn:
        write(conn, EVENT, schema=name)


def shape(dsn: str, name: str) -> list[Any]:
    """Return the catalogs' description of a schema, without its name."""
    query = """
        SELECT 'column', table_name::text, column_name::text, data_type::text, column_default::text
          FROM information_schema.columns WHERE table_schema = %(name)s
        UNION ALL
        SELECT 'function', proname, pg_get_function_arguments(p.oid), prosrc, proconfig::text
          FROM pg_proc AS p WHERE pronamespace = to_regnamespace(%(name)s)
        UNION ALL
        SELECT 'index', indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = %(name)s
    """
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(query, {"name": name}).fetchall()
    return sorted([str(cell).replace(name, "?") for cell in row] for row in rows)
