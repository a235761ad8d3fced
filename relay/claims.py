"""Which names have published from a database, noted there: if progress is missing, it was lost."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from relay.errors import Refused
from relay.postgres import connect
from relay.progress import Origin


@contextmanager
def claims(dsn: str, schema: str, name: str) -> Iterator["Claim"]:
    """Give the claim of an outbox name, over a connection of its own."""
    with connect(dsn, purpose="claim") as conn:
        yield Claim(conn, sql.Identifier(schema, "claims"), name)


class Claim:
    """What the database remembers of one outbox name."""

    def __init__(
        self, conn: psycopg.Connection[tuple[object, ...]], table: sql.Identifier, name: str
    ) -> None:
        self._conn, self._table, self._name = conn, table, name

    def require_none(self, origin: Origin, topic: str) -> None:
        """
        Check that nothing was published under this name, of which there is no progress.

        Raises:
            Refused: something was: its progress was lost.
        """
        row = self._conn.execute(
            sql.SQL(
                "SELECT since::timestamptz(0)::text FROM {}"
                " WHERE (name, system_identifier, database) = (%s, %s, %s)"
            ).format(self._table),
            [self._name, origin.system_identifier, origin.database],
        ).fetchone()
        if row is not None:
            msg = (
                f"outbox {self._name!r} has published from this database since {row[0]}, but "
                f"progress topic {topic} of this Kafka knows nothing of it: it was deleted or "
                "trimmed, or this is another Kafka. Beginning anew would publish everything "
                "again: give this relay a `name` of its own if that is wanted, or restore the "
                "topic"
            )
            raise Refused(msg)

    def note(self, origin: Origin) -> None:
        """Remember that this name has published; only once its progress is durable."""
        self._conn.execute(
            sql.SQL(
                "INSERT INTO {} (name, system_identifier, database) VALUES (%s, %s, %s)"
                " ON CONFLICT DO NOTHING"
            ).format(self._table),
            [self._name, origin.system_identifier, origin.database],
        )
