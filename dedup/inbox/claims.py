"""Claim partitions in the inbox, so that earlier owners can no longer commit there."""

from collections.abc import Iterable

from psycopg import sql

from dedup.inbox import schema as inbox_schema
from dedup.inbox.connections import PATIENCE, Connections
from dedup.retries.aside import Partition


class InboxClaims:
    """The partitions of one consumer group, in one schema of a database."""

    def __init__(
        self,
        dsn: str,
        consumer: str,
        schema: str = inbox_schema.DEFAULT_SCHEMA,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._connections, self._consumer = (
            Connections(dsn, patience=patience, ours=True),
            consumer,
        )
        self._query = sql.SQL("SELECT {}.claim(%s, %s, %s)").format(sql.Identifier(schema))

    def claim(self, partitions: Iterable[Partition]) -> list[int]:
        """
        Claim partitions, and return the numbers of the claims.

        Raises:
            psycopg.Error: the database does not answer, or refuses.
        """
        # Use a transaction for each: one may have to wait for a transaction that is committing.
        return [self._claimed(*each) for each in partitions]

    def close(self) -> None:
        self._connections.close()

    def _claimed(self, topic: str, partition: int) -> int:
        with self._connections.begin() as conn:
            row = conn.execute(self._query, [self._consumer, topic, partition]).fetchone()
        return int(row[0]) if row else 0
