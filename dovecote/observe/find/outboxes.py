"""Ask an outbox for events: its table, what is parked, and how far its relays have come."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from dedup.rules.identity import Identity
from dovecote.observe.find.rules.facts import Parked, Row
from dovecote.observe.find.rules.life import PartFailure
from dovecote.observe.find.rules.query import Query, is_of, uuid_of
from dovecote.observe.sources import OutboxSource
from outbox import schema as outbox_schema
from outbox.errors import DovecoteError
from relay.kafka.progress_topic import ProgressTopic
from relay.postgres.connect import connect, explained
from relay.postgres.lease import active, role_of
from relay.rules.places.progress import Cursor, LogPosition, Progress
from relay.rules.sharding import Shard, shard_of

SECONDS = 10.0
"""How long an outbox may take to answer."""

# Postgres ends a statement before we stop to listen.
_STATEMENT_MS = 8_000
_KAFKA_SECONDS = 5.0
_MOST_COUNTED = 10_000

_ROW = sql.SQL(
    "SELECT position, id::text, source, topic, key, type, appended_at"
    " FROM {events} AS e WHERE {which} ORDER BY position DESC LIMIT %(limit)s"
)
_PASSED = sql.SQL(
    "(pg_visible_in_snapshot(xid, %(since)s::text::pg_snapshot) OR coalesce("
    "pg_visible_in_snapshot(xid, %(until)s::text::pg_snapshot) AND position <= %(at)s, false))"
)
_PARKED = sql.SQL(
    "SELECT p.id::text, p.source, p.topic, p.key, p.type, p.code, p.reason, p.parked_at,"
    " (SELECT f.id::text FROM {parked} AS f WHERE f.name = p.name AND f.holds"
    " AND f.topic = p.topic AND sha256(f.key) = sha256(p.key) AND f.number < p.number"
    " ORDER BY f.number LIMIT 1)"
    " FROM {parked} AS p WHERE p.name = ANY (%(names)s) AND {which} ORDER BY p.number DESC"
    " LIMIT %(limit)s"
)


class OutboxAnswer(NamedTuple):
    """The events that an outbox has."""

    rows: list[Row]
    parked: list[Parked]
    failures: list[PartFailure]
    shows_table: bool
    """Whether its table has the events; otherwise they are in the write-ahead log."""


class _State(NamedTuple):
    """The state of one shard."""

    progress: Progress | None
    relay: str | None
    words: str


def ask(part: str, source: OutboxSource, query: Query) -> OutboxAnswer:
    """
    Return the events of an outbox, the newest first.

    Raises:
        DovecoteError: Postgres does not answer, or there is no outbox.
    """
    schema = source.schema_name
    with _session(source) as conn:
        shards = [Shard(source.name, each, source.shards) for each in range(source.shards)]
        names = [each.name for each in shards]
        parked = [Parked(part, *_plain(row)) for row in _select_parked(conn, schema, names, query)]
        state = conn.execute(
            sql.SQL("SELECT state FROM {}").format(sql.Identifier(schema, "reading"))
        ).fetchone()
        rows = _select(conn, schema, query)
        failures: list[PartFailure] = []
        found: list[Row] = []
        if rows:
            known = _Shards(part, source, conn, failures)
            found = [known.row(row) for row in rows]
    return OutboxAnswer(
        [each for each in found if _is_wanted(query, each)],
        [each for each in parked if _is_wanted(query, each)],
        failures,
        shows_table=state is None or state[0] != "wal",
    )


def _is_wanted(query: Query, found: Row | Parked) -> bool:
    return is_of(query, found.id, found.source, Identity(found.source, found.id).name)


class _Shards:
    """The shards of an outbox, each asked once for its progress and its relay."""

    def __init__(
        self,
        part: str,
        source: OutboxSource,
        conn: psycopg.Connection[Any],
        failures: list[PartFailure],
    ) -> None:
        self._part, self._source, self._conn, self._failures = part, source, conn, failures
        self._states: dict[int, _State] = {}

    def row(self, row: Any) -> Row:  # noqa: ANN401  # a row of Postgres
        """Return a row of the table with the state of its shard."""
        position, id_, source, topic, key, type_, at = _plain(row)
        number = shard_of(key, id_, self._source.shards)
        if number not in self._states:
            self._states[number] = self._state(number)
        state = self._states[number]
        published, ahead = self._published(position, id_, state.progress)
        return Row(
            self._part,
            id_,
            source,
            topic,
            key,
            type_,
            position,
            at,
            published if state.words else None,
            state.relay,
            state.words,
            ahead,
        )

    def _state(self, number: int) -> _State:
        source = self._source
        name = Shard(source.name, number, source.shards).name
        relay = active(self._conn, role_of(source.schema_name, name))
        topic = ProgressTopic(source.progress_topic, source.kafka, timeout=_KAFKA_SECONDS)
        try:
            progress = topic.peek(name) if topic.exists() else None
        except DovecoteError as error:
            self._failures.append(PartFailure(self._part, f"its progress is not known: {error}"))
            return _State(None, relay, "")
        words = "the relay has published nothing" if progress is None else str(progress.cursor)
        return _State(progress, relay, words)

    def _published(self, position: int, id_: str, progress: Progress | None) -> tuple[bool, int]:
        """Return whether progress passes a row, and how many earlier rows it does not pass."""
        match None if progress is None else progress.cursor:
            case LogPosition(seen=seen):
                place = Cursor() if seen is None else Cursor(seen)
            case Cursor() as place:
                pass
            case None:
                place = Cursor()
        given = {
            "since": str(place.since),
            "until": None if place.until is None else str(place.until),
            "at": place.position,
            "position": position,
            "id": id_,
            "most": _MOST_COUNTED,
        }
        events = sql.Identifier(self._source.schema_name, "events")
        found = self._conn.execute(
            sql.SQL(
                "SELECT {passed} FROM {events} WHERE position = %(position)s AND id = %(id)s"
            ).format(passed=_PASSED, events=events),
            given,
        ).fetchone()
        if found is None:  # it was removed meanwhile, which only happens to published rows
            return True, 0
        if found[0]:
            return True, 0
        before = self._conn.execute(
            sql.SQL(
                "SELECT count(*) FROM (SELECT FROM {events} WHERE position < %(position)s"
                " AND NOT {passed} LIMIT %(most)s) AS waiting"
            ).format(passed=_PASSED, events=events),
            given,
        ).fetchone()
        return False, 0 if before is None else int(before[0])


def _select(conn: psycopg.Connection[Any], schema: str, query: Query) -> Sequence[Any]:
    which, given = _which(query, "e", "appended_at")
    if which is None:
        return []
    asked = _ROW.format(events=sql.Identifier(schema, "events"), which=which)
    return conn.execute(asked, {**given, "limit": query.limit}).fetchall()


def _select_parked(
    conn: psycopg.Connection[Any], schema: str, names: list[str], query: Query
) -> Sequence[Any]:
    which, given = _which(query, "p", "parked_at")
    if which is None:
        return []
    asked = _PARKED.format(parked=sql.Identifier(schema, "parked"), which=which)
    return conn.execute(asked, {**given, "names": names, "limit": query.limit}).fetchall()


def _which(query: Query, table: str, at: str) -> tuple[sql.Composable | None, dict[str, object]]:
    """Return the condition of a query, and its values; None: no row can meet it."""
    given: dict[str, object] = {}
    conditions: list[sql.Composable] = []
    if query.id is not None:
        given["uuid"] = uuid_of(query)
        if given["uuid"] is None:
            return None, {}
        conditions.append(sql.SQL("{}.id = %(uuid)s").format(sql.Identifier(table)))
    else:
        given |= {"key": query.key, "from": query.since, "to": query.until}
        conditions.append(
            sql.SQL(
                "{0}.key = %(key)s AND {0}.{1} >= %(from)s"
                " AND ({0}.{1} < %(to)s OR %(to)s::timestamptz IS NULL)"
            ).format(sql.Identifier(table), sql.Identifier(at))
        )
    if query.topic is not None:
        given["topic"] = query.topic
        conditions.append(sql.SQL("{}.topic = %(topic)s").format(sql.Identifier(table)))
    return sql.SQL(" AND ").join(conditions), given


def _plain(row: Any) -> list[Any]:  # noqa: ANN401  # a row of Postgres
    return [bytes(each) if isinstance(each, memoryview) else each for each in row]


@contextmanager
def _session(source: OutboxSource) -> Iterator[psycopg.Connection[Any]]:
    with (
        explained(source.schema_name, source.dsn),
        connect(source.dsn, purpose="find") as conn,
    ):
        conn.execute(f"SET statement_timeout = {_STATEMENT_MS}".encode())
        conn.execute("SET default_transaction_read_only = on")
        outbox_schema.require(conn, source.schema_name)
        yield conn
