"""Store the history of held records in Postgres."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from dedup.inbox import schema as inbox_schema
from dedup.inbox.connections import PATIENCE, Connections
from dedup.retries.aside import Partition
from dedup.retries.held_states import NotKept, Place, State
from dedup.rules.identity import stored
from dedup.rules.policies.wording import plain
from dedup.rules.record import Record
from dovecote.process.rarely import Rarely
from outbox.envelope import Delivery
from outbox.errors import NotAllowed, first_line
from outbox.postgres.away import is_at_fault, is_outage
from outbox.postgres.session import hides_rows
from outbox.schema.belongings import showing

_rarely = Rarely(logging.getLogger("dovecote.consumer.retries"))


class PostgresStates:
    """
    Stores the states in the inbox's schema.

    While Postgres is away nothing is stored; this is logged, and nobody waits. A record's history
    is worth less than progress for the others.
    """

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
        self._dsn, self._schema = dsn, schema
        self._table = sql.Identifier(schema, "held")

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, State]:
        """Return the states of held records of these partitions."""
        query = sql.SQL(
            'SELECT topic, partition, "offset", id, attempt, round, first_seen, due, error, origin'
            " FROM {} WHERE consumer = %s AND (topic, partition) IN"
            " (SELECT * FROM unnest(%s::text[], %s::int[]))"
        ).format(self._table)
        topics, numbers = [each[0] for each in partitions], [each[1] for each in partitions]
        found: dict[Place, State] = {}
        for row in self._ask(query, [self._consumer, topics, numbers]):
            place = row[:3]
            attempt, round_, first_seen, due, error, origin = row[4:]
            found[place] = State(
                row[3],
                Delivery(
                    attempt=attempt,
                    round=round_,
                    first_seen=first_seen,
                    not_before=due,
                    error=error,
                    origin=origin,
                ),
            )
        return found

    def keep(self, record: Record, state: Delivery) -> None:
        """
        Store the state of a record.

        Raises:
            NotKept: the database cannot hold it.
        """
        query = sql.SQL(
            'INSERT INTO {} (consumer, topic, partition, "offset", id, attempt, round,'
            " first_seen, due, error, origin)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            ' ON CONFLICT (consumer, topic, partition, "offset") DO UPDATE SET'
            " id = excluded.id, attempt = excluded.attempt, round = excluded.round,"
            " first_seen = excluded.first_seen, due = excluded.due, error = excluded.error,"
            " origin = excluded.origin"
        ).format(self._table)
        error, origin = (
            None if text is None else plain(text) for text in (state.error, state.origin)
        )
        values = [
            *(self._consumer, *record[:3], stored(record.identity)),
            *(state.attempt, state.round, state.first_seen or 0, state.not_before or 0, error),
            origin,
        ]
        try:
            self._ask(query, values)
        except psycopg.Error as error:
            if not is_at_fault(error):
                raise
            msg = f"its history cannot be kept: Postgres: {first_line(error)}"
            raise NotKept(msg) from error

    def drop(self, record: Record) -> None:
        """Forget a record that is completed."""
        query = sql.SQL(
            "DELETE FROM {} WHERE consumer = %s AND topic = %s AND partition = %s"
            ' AND "offset" = %s'
        ).format(self._table)
        self._ask(query, [self._consumer, *record[:3]])

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()

    def _ask(self, query: sql.Composed, values: Sequence[object]) -> list[Any]:
        try:
            with self._connections.begin() as conn:
                cursor = conn.execute(query, values)
                return cursor.fetchall() if cursor.description else []
        except errors.InsufficientPrivilege as error:
            if hides_rows(error):
                msg = f"[inbox] {first_line(error)}; {showing(self._schema)}"
                raise NotAllowed(msg) from error
            # The right was revoked after the start: the record waits until the role has it again.
            role = str(conninfo_to_dict(self._dsn).get("user") or os.environ.get("PGUSER", "ROLE"))
            raise inbox_schema.not_allowed(role, self._schema) from error
        except psycopg.Error as error:
            if not is_outage(error):
                raise
            _rarely.warning("attempts of held records are not kept: %s", first_line(error))
            return []
