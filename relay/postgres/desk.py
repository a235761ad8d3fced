"""The operators' view of parked events, and their commands to the active relay."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from outbox import schema as outbox_schema
from outbox.errors import DovecoteError
from outbox.schema import holds
from relay.postgres.census import census
from relay.postgres.connect import connect, explained
from relay.postgres.lease import active, role_of
from relay.postgres.parked import MATCHES, asking
from relay.postgres.shard_count import require_noted
from relay.rules.crowding import NO_LIMITS, Census, Limits
from relay.rules.parking import BEHIND
from relay.rules.sharding import Shard
from relay.settings import RelaySettings

Action = Literal["requeue", "drop"]

_COLUMNS = sql.SQL(
    "p.number, p.id::text, p.topic, p.key, p.type, p.code, p.reason, p.holds, p.attempt,"
    ' p.parked_at, p.source, p.subject, p.content_type, p."time", octet_length(p.value) AS size'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEvent:
    """One parked event, without its value."""

    number: int
    """Counts in the order of the stream."""
    id: str
    topic: str
    key: bytes | None
    type: str
    code: str
    reason: str
    holds: bool
    attempt: int
    parked_at: datetime
    source: str
    subject: str | None
    content_type: str | None
    time: datetime
    size: int | None
    """Bytes of the value."""

    @property
    def waits(self) -> bool:
        """Return whether nothing is wrong with the event except that it waits for another one."""
        return self.code == BEHIND.code


@dataclass(frozen=True, slots=True)
class Content:
    """The content of an event."""

    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Which:
    """A selection of parked events; the fields narrow each other."""

    ids: Sequence[str] = ()
    topic: str | None = None
    key: bytes | None = None
    type: str | None = None
    reason: str | None = None
    """Part of the reason, in upper or lower case."""
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING = Which()


@dataclass(frozen=True, slots=True)
class Asked:
    """The commands given to the active relay."""

    commands: Sequence[int]
    tickets: Sequence[int]
    """The parked events that the commands were about when they were given."""

    @property
    def events(self) -> int:
        """The number of these events."""
        return len(self.tickets)


class Desk:
    """The parked events of one outbox name, over a connection of its own."""

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        schema: str,
        name: str,
        *,
        limits: Limits = NO_LIMITS,
    ) -> None:
        """`limits`: beyond them, topics and keys have too many parked events."""
        self.limits = limits
        self._conn, self._schema, self._name = conn, schema, name
        self._parked = sql.Identifier(schema, "parked")
        self._commands = sql.Identifier(schema, "parked_commands")

    def count(self) -> int:
        """Return how many events are parked."""
        return int(self._one("SELECT count(*) FROM {parked} WHERE name = %(name)s"))

    def counted(self) -> Census:
        """Return how many events are parked, and where too many are."""
        return census(self._conn, self._schema, self._name, self.limits)

    def has_relay(self) -> bool:
        """Return whether a relay is active that carries out commands."""
        return active(self._conn, role_of(self._schema, self._name)) is not None

    def elsewhere(self) -> Mapping[str, int]:
        """Return how many events are parked under other names."""
        query: LiteralString = (
            "SELECT name, count(*) FROM {parked} WHERE name <> %(name)s GROUP BY 1 ORDER BY 1"
        )
        rows = self._conn.execute(self._filled(query), {"name": self._name}).fetchall()
        return {str(name): int(count) for name, count in rows}

    def events(self, which: Which, most: int) -> list[ParkedEvent]:
        """Return parked events in the order of the stream."""
        query: LiteralString = (
            "SELECT {columns} FROM {parked} AS p WHERE p.name = %(name)s AND {which}"
            " ORDER BY number LIMIT %(most)s"
        )
        with self._conn.cursor(row_factory=class_row(ParkedEvent)) as cursor:
            return cursor.execute(self._filled(query, which), self._given(which, most)).fetchall()

    def newest(
        self, which: Which, most: int, before: tuple[datetime, str] | None = None
    ) -> list[ParkedEvent]:
        """Return parked events, the newest first; `before`: older ones, by time and id."""
        query: LiteralString = (
            "SELECT {columns} FROM {parked} AS p WHERE p.name = %(name)s AND {which}"
            ' AND (%(at)s::timestamptz IS NULL OR (p.parked_at, p.id::text COLLATE "C")'
            ' < (%(at)s::timestamptz, %(id)s::text COLLATE "C"))'
            ' ORDER BY p.parked_at DESC, p.id::text COLLATE "C" DESC LIMIT %(most)s'
        )
        at, id_ = before or (None, "")
        given = {**self._given(which, most), "at": at, "id": id_}
        with self._conn.cursor(row_factory=class_row(ParkedEvent)) as cursor:
            return cursor.execute(self._filled(query, which), given).fetchall()

    def content(self, number: int) -> Content | None:
        """Return the content of a parked event; None: it is no longer parked."""
        row = self._conn.execute(
            self._filled(
                "SELECT value, header_names, header_values FROM {parked}"
                " WHERE name = %(name)s AND number = %(number)s"
            ),
            {"name": self._name, "number": number},
        ).fetchone()
        return row and Content(row[0], list(zip(row[1] or (), row[2] or (), strict=True)))

    def ask(self, action: Action, which: Which) -> Asked:
        """
        Command the active relay to requeue or drop parked events; return what was asked of it.

        Events that hold their key are requeued with all others of the key, to keep its order. An
        event that is dropped by its id is dropped alone.
        """
        with self._conn.transaction():
            # Commands must become visible in the order of their numbers.
            turn = asking(self._name)
            holds.hold_soon(self._conn, self._schema, turn)
            commands = self._conn.execute(
                self._filled(
                    "INSERT INTO {commands} (name, action, topic, key, ticket, up_to)"
                    " SELECT %(name)s, %(action)s, topic, key, ticket,"
                    " (SELECT coalesce(max(ticket), 0) FROM {parked} WHERE name = %(name)s)"
                    " FROM (SELECT CASE WHEN {whole} THEN p.topic END AS topic,"
                    " CASE WHEN {whole} AND p.holds THEN p.key END AS key,"
                    " CASE WHEN NOT ({whole}) THEN p.ticket END AS ticket,"
                    " min(p.number) AS first FROM {parked} AS p"
                    " WHERE p.name = %(name)s AND {which} GROUP BY 1, 2, 3) AS wanted"
                    " ORDER BY first RETURNING number",
                    which,
                    _whole(action, which),
                ),
                {**self._given(which), "action": action},
            ).fetchall()
            numbers = [number for (number,) in commands]
            # Nobody has seen events that are parked between these two statements.
            tickets = self._one(
                "SELECT array_agg(DISTINCT p.ticket) FROM {parked} AS p, {commands} AS c"
                " WHERE p.name = %(name)s AND c.number = ANY (%(numbers)s) AND {matches}"
                " AND p.ticket <= c.up_to",
                numbers=numbers,
            )
            # Others have to wait for the end of this transaction all the same.
            holds.let_go(self._conn, self._schema, turn)
        return Asked(numbers, tickets or [])

    def are_done(self, asked: Asked) -> bool:
        """Return whether everything that was asked has been carried out."""
        query: LiteralString = (
            "SELECT NOT EXISTS (SELECT FROM {commands} WHERE number = ANY (%(numbers)s))"
        )
        return bool(self._one(query, numbers=list(asked.commands)))

    def left(self, asked: Asked) -> int:
        """Return how many of the events in question are still parked."""
        query: LiteralString = (
            "SELECT count(*) FROM {parked} WHERE name = %(name)s AND ticket = ANY (%(tickets)s)"
        )
        return int(self._one(query, tickets=list(asked.tickets)))

    def _one(self, query: LiteralString, **parameters: object) -> Any:  # noqa: ANN401  # a column of any type
        given = {"name": self._name, **parameters}
        row = self._conn.execute(self._filled(query), given).fetchone()
        return row and row[0]

    def _filled(
        self, query: LiteralString, which: Which = EVERYTHING, whole: LiteralString = "true"
    ) -> sql.Composed:
        conditions: list[LiteralString] = ["true"]
        if which.ids:
            conditions.append("p.id = ANY (%(ids)s::uuid[])")
        if not all(map(_is_text, _texts(which).values())):
            conditions.append("false")
        if which.topic is not None:
            conditions.append("p.topic = %(topic)s")
        if which.key is not None:
            conditions.append("p.key = %(key)s")
        if which.type is not None:
            conditions.append("p.type = %(type)s")
        if which.reason is not None:
            conditions.append("strpos(lower(p.reason), lower(%(reason)s)) > 0")
        if which.since is not None:
            conditions.append("p.parked_at >= %(since)s")
        if which.until is not None:
            conditions.append("p.parked_at < %(until)s")
        return sql.SQL(query).format(
            parked=self._parked,
            commands=self._commands,
            columns=_COLUMNS,
            matches=MATCHES,
            whole=sql.SQL(whole),
            which=sql.SQL(" AND ".join(conditions)),
        )

    def _given(self, which: Which, most: int = 0) -> dict[str, object]:
        odd = {name: None for name, each in _texts(which).items() if not _is_text(each)}
        return {**asdict(which), **odd, "ids": list(which.ids), "name": self._name, "most": most}


def _texts(which: Which) -> dict[str, str | None]:
    return {"topic": which.topic, "type": which.type, "reason": which.reason}


def _is_text(text: str | None) -> bool:
    """Return whether Postgres can hold a text; no event has one that it cannot hold."""
    return text is None or ("\0" not in text and text.encode(errors="replace").decode() == text)


def _whole(action: Action, which: Which) -> LiteralString:
    """Return the condition for events that are selected by key or topic, not one by one."""
    if not (which.ids or which.type or which.reason or which.since or which.until):
        return "true" if which.key is None else "p.holds"
    return "p.holds" if action == "requeue" else "false"


@contextmanager
def desk(settings: RelaySettings) -> Iterator[Desk]:
    """
    Open the parked events of the shard that `settings` name.

    Raises:
        Outage: Postgres does not answer.
        Refused: the role lacks a right, or the outbox is published in another number of shards.
        SchemaMissing: the outbox is not installed.
    """
    (shard,) = settings.own_shards()
    limits = Limits(settings.park_most, settings.park_most_of_key)
    with desk_of(settings.dsn, settings.schema_name, shard, limits=limits) as opened:
        yield opened


@contextmanager
def desk_of(dsn: str, schema: str, shard: Shard, *, limits: Limits = NO_LIMITS) -> Iterator[Desk]:
    """Open the parked events of a shard; raises what `desk` does."""
    with explained(schema, dsn), connect(dsn, purpose="parked") as conn:
        outbox_schema.require(conn, schema)
        require_noted(conn, schema, Shard(shard.outbox, of=shard.of))
        yield Desk(conn, schema, shard.name, limits=limits)


def require_known(which: Which, found: Sequence[ParkedEvent]) -> None:
    """
    Check that each selected id is parked.

    Raises:
        DovecoteError: one is not.
    """
    if missing := sorted(set(which.ids) - {event.id for event in found}):
        msg = (
            f"not parked: {', '.join(missing)}; it was published or dropped, or is of another "
            "outbox. `dovecote relay parked list` shows what is parked"
        )
        raise DovecoteError(msg)
