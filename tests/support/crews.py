"""The roles of an outbox: its owner, its writer, its relay and a stranger."""

from typing import NamedTuple

import psycopg

ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


class Crew(NamedTuple):
    """A database, and connection strings to it: as its owner and as each role."""

    owner: str
    writer: str
    relay: str
    stranger: str

    def role(self, duty: str) -> str:
        return str(psycopg.conninfo.conninfo_to_dict(getattr(self, duty))["user"])


def rights(crew: Crew, duty: str) -> set[tuple[str, str]]:
    """Return everything that a role can do in the schema, according to the server."""
    with psycopg.connect(crew.owner) as conn:
        parameters = {"role": crew.role(duty), "rights": list(ON_TABLES)}
        return set(
            conn.execute(
                "SELECT relname, kind FROM pg_class, unnest(%(rights)s::text[]) AS kind"
                " WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
                " AND has_table_privilege(%(role)s, oid, kind)"
                " UNION ALL SELECT relname, kind FROM pg_class,"
                " unnest('{SELECT,USAGE,UPDATE}'::text[]) AS kind"
                " WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'S'"
                " AND has_sequence_privilege(%(role)s, oid, kind)"
                " UNION ALL SELECT proname, 'EXECUTE' FROM pg_proc"
                " WHERE pronamespace = 'outbox'::regnamespace"
                " AND has_function_privilege(%(role)s, oid, 'EXECUTE')"
                " UNION ALL SELECT 'outbox', kind FROM unnest('{USAGE,CREATE}'::text[]) AS kind"
                " WHERE has_schema_privilege(%(role)s, 'outbox', kind)",
                parameters,
            ).fetchall()
        )
