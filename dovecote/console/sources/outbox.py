"""Ask Postgres for an outbox's relays, parked events and topics, over one lasting connection."""

from contextlib import suppress
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from dovecote.console.rules.facts import OutboxFacts, OutboxLag, ShardFacts
from dovecote.observe.sources import OutboxSource
from outbox import schema as outbox_schema
from outbox.errors import DovecoteError, first_line
from relay.kafka.progress_topic import ProgressTopic
from relay.postgres.capture.lag import lag_of
from relay.postgres.connect import connect, explained
from relay.postgres.lease import candidates_of, role_of
from relay.rules.places.progress import Cursor
from relay.rules.sharding import divided

# The rows that are looked at for topics: the whole table may be large.
_ROWS = 200
_LOOK: LiteralString = """
SELECT (SELECT coalesce(array_agg(what), '{{}}') FROM {schema}.holding()),
       (SELECT coalesce(json_object_agg(name, n), '{{}}') FROM
           (SELECT name, count(*) AS n FROM {schema}.parked GROUP BY name) AS p),
       (SELECT array_agg(topic) FROM (
           SELECT DISTINCT topic FROM (SELECT topic FROM {schema}.events LIMIT {rows}) AS e
           UNION SELECT DISTINCT topic FROM
               (SELECT topic FROM {schema}.parked LIMIT {rows}) AS q) AS t)
"""
_MOST_TOPICS = 1_000
_NOTHING: tuple[Any, Any, Any] = ([], {}, [])


class OutboxDesk:
    """One outbox; one thread asks."""

    def __init__(self, source: OutboxSource, timeout: float) -> None:
        self._source, self._timeout = source, timeout
        self._conn: psycopg.Connection[Any] | None = None
        self._topics: dict[str, None] = {}
        self.queries = 0
        """Queries so far."""

    def ask(self) -> OutboxFacts:
        """
        Return the facts.

        Raises:
            DovecoteError: Postgres does not answer in time, or the outbox is not installed.
        """
        schema = self._source.schema_name
        query = sql.SQL(_LOOK).format(schema=sql.Identifier(schema), rows=sql.Literal(_ROWS))
        with self._connected() as conn:
            self.queries += 1
            row = conn.execute(query).fetchone()
        held, parked, topics = row or _NOTHING
        holding = set(held)
        # Rows leave the table; the topics stay those of the outbox.
        known = list(self._topics | dict.fromkeys(sorted(topics or [])))
        self._topics = dict.fromkeys(known[-_MOST_TOPICS:])
        shards = [
            ShardFacts(
                each.name,
                bool(holding & set(role_of(schema, each.name).names)),
                len(holding & set(candidates_of(schema, each.name).names)),
                int(parked.get(each.name, 0)),
            )
            for each in divided(self._source.name, self._source.shards)
        ]
        return OutboxFacts(shards, sorted(self._topics))

    def lag(self) -> OutboxLag:
        """
        Return what waits to be published; this reads progress in Kafka.

        Raises:
            DovecoteError: Postgres or Kafka does not answer.
        """
        source = self._source
        topic = ProgressTopic(source.progress_topic, source.kafka, timeout=self._timeout)
        there = topic.exists()
        rows = seconds = size = None
        for shard in divided(source.name, source.shards):
            progress = topic.peek(shard.name) if there else None
            place = progress.cursor if progress else Cursor()
            with self._connected() as conn:
                self.queries += 5
                lag = lag_of(conn, source.schema_name, shard, place)
            if lag.rows is not None:
                rows = (rows or 0) + lag.rows
                seconds = max(seconds or 0.0, lag.seconds or 0.0)
            if lag.bytes is not None:
                size = max(size or 0, lag.bytes)
        return OutboxLag(rows, seconds, size)

    def close(self) -> None:
        """End the connection."""
        if self._conn is not None:
            with suppress(psycopg.Error):
                self._conn.close()
            self._conn = None

    def _connected(self) -> "_Asking":
        return _Asking(self)

    def opened(self) -> psycopg.Connection[Any]:
        """Return the connection, which is opened if there is none."""
        if self._conn is None or self._conn.closed:
            with explained(self._source.schema_name, self._source.dsn):
                conn = connect(self._source.dsn, purpose="console")
                try:
                    outbox_schema.require(conn, self._source.schema_name)
                    limit = str(int(self._timeout * 1000))
                    conn.execute("SELECT set_config('statement_timeout', %s, false)", [limit])
                except BaseException:
                    conn.close()
                    raise
            self._conn = conn
        return self._conn


class _Asking:
    """Asks in a block; an error ends the connection, and is one of ours."""

    def __init__(self, desk: OutboxDesk) -> None:
        self._desk = desk

    def __enter__(self) -> psycopg.Connection[Any]:
        try:
            return self._desk.opened()
        except psycopg.Error as error:
            raise DovecoteError(first_line(error)) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self._desk.close()
        if isinstance(error, psycopg.Error):
            raise DovecoteError(first_line(error)) from error
