"""
Keep parked events in Postgres, in the session that has the active role.

Each statement commits by itself. A relay that has lost the role has lost the session too, and can
no longer park anything.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from outbox.schema import holds
from relay.decoding.headers import format_time
from relay.postgres.capture.window import ANY_SIZE, SPARED
from relay.postgres.server_log import end_of_log
from relay.rules.held import Lane
from relay.rules.parking import OF_TOPIC, EventMark, EventToPark, Reason
from relay.rules.places.lsn import format_lsn, log_number, log_place, parse_lsn
from relay.rules.places.progress import LogPosition, Place
from relay.rules.row import ID, POSITION, Identity, Key, Row, is_left, size_of

_MOST_COMMANDS = 100

# The most that one statement parks: it is soon done, and fits into the buffers of a socket.
_MOST_EVENTS = 100
_MOST_BYTES = 100_000

# The most keys, topics or events that one statement looks at: it is soon done, and the server
# hears from us in between.
_MOST_KEYS, _MOST_TOPICS, _MOST_ROWS = 5_000, 1_000, 10_000

COUNTED = 100_000
"""The most parked events that are counted when a relay begins."""

ASIDE = 1 << 40
"""Numbers from here on belong to events that will be read again."""

MATCHES = sql.SQL(
    "(coalesce(p.refused_by, 0) < c.number AND (p.ticket = c.ticket OR p.topic = c.topic"
    " AND CASE WHEN c.key IS NULL THEN NOT p.holds ELSE p.holds AND p.key = c.key END))"
)
"""
Whether a command `c` is about a parked event `p`.

It is no longer about an event that this or a later command found refused: for such an event, the
position in progress says nothing.
"""
_HELD = sql.SQL("name = %(name)s AND holds")
_PLACE = sql.SQL("p.position, p.lsn::text")
_ROW = sql.SQL(
    "{place}, p.id::text,"
    " (extract(epoch FROM p.\"time\" - '2000-01-01 00:00:00+00') * 1000000)::bigint, p.topic,"
    " {spared}"
).format(place=_PLACE, spared=SPARED)


_CONTENT = sql.SQL(
    'id, "time", topic, key, value, type, source, subject, content_type, header_names,'
    " header_values"
)
_COLUMNS = sql.SQL("position, lsn, {}").format(_CONTENT)
_GIVEN = sql.SQL(
    "(%s::bigint, %s::bigint, %s::bigint, %s::pg_lsn, %s::uuid, %s::timestamptz, %s, %s::bytea,"
    " %s::bytea, %s, %s, %s::text, %s::text, %s::text[], %s::bytea[], %s, %s, %s::boolean)"
)


# A row goes only once it is published or parked.
_PASSED_IN_TABLE = sql.SQL(
    "CASE WHEN p.lsn IS NOT NULL THEN p.lsn < %(log)s::pg_lsn ELSE NOT EXISTS"
    " (SELECT FROM {events} AS e WHERE e.position = p.position AND e.id = p.id"
    " AND NOT pg_visible_in_snapshot(e.xid, %(since)s::text::pg_snapshot)"
    " AND (pg_visible_in_snapshot(e.xid, %(until)s::text::pg_snapshot)"
    " AND e.position <= %(position)s) IS NOT TRUE) END"
)


class Command(NamedTuple):
    """
    An operator's command.

    It is about the events that hold `key` of `topic`; if `key` is None, about the events of
    `topic` that hold no key; or about the event with `ticket`. The event's number may belong to
    another event by now.
    """

    number: int
    action: str
    topic: str | None
    key: bytes | None
    ticket: int | None


class Due(NamedTuple):
    """One parked event that is to be published, and its number."""

    number: int
    row: Row


class Welcome(NamedTuple):
    """Commands that the relay gave itself."""

    commands: int
    more_after: int | None
    """More events may be parked after this number; None: none are."""


class Dropped(NamedTuple):
    """Deleted events, and whether these were all."""

    events: int
    is_done: bool


class Known(NamedTuple):
    """The parked events when a relay begins."""

    events: int
    """Counted up to `COUNTED`."""
    marks: dict[Identity, EventMark]
    """The marks of events that will be read again."""
    waited: dict[str, tuple[Reason, float]]
    """Topics that were refused and not tried since, with the seconds since then."""
    highest: int = 0
    """The highest number of an event that will not be read again."""


class ParkedStore:
    """The parked events of one outbox name."""

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        schema: str,
        name: str,
        *,
        largest: int = ANY_SIZE,
        elsewhere: Collection[str] = (),
    ) -> None:
        """
        Use the session that has the role; read no value larger than `largest`.

        Kafka has the events whose ids are in `elsewhere`: they are set aside and hold no key.
        """
        self._conn, self._schema, self._name = conn, schema, name
        self._parked = sql.Identifier(schema, "parked")
        self._commands = sql.Identifier(schema, "parked_commands")
        self._events = sql.Identifier(schema, "events")
        self._largest, self._elsewhere = largest, list(elsewhere)
        # A role that lacks a right which it will need some day shall fail now.
        self._execute(
            "WITH gone AS (DELETE FROM {parked} WHERE false),"
            " changed AS (UPDATE {parked} SET attempt = attempt WHERE false),"
            " come AS (INSERT INTO {parked} SELECT * FROM {parked} WHERE false),"
            " done AS (DELETE FROM {commands} WHERE false),"
            " asked AS (INSERT INTO {commands} (name, action, ticket, up_to)"
            " SELECT name, action, ticket, up_to FROM {commands} WHERE false) SELECT 1"
        )
        # Nothing is held by now: a role that may not let go is told so at the start.
        holds.let_go(conn, schema, asking(name))

    def tidy(self, last_command: int, requeued: int, passed: int) -> None:
        """
        Delete what the newest command has published, and commands older than it.

        Commands that wait for events beyond number `passed` stay, see `commands`.
        """
        self._execute(
            "DELETE FROM {parked} AS p USING {commands} AS c WHERE p.name = %(name)s"
            " AND c.name = %(name)s AND c.number = %(last)s AND p.number <= %(requeued)s"
            " AND c.action = 'requeue' AND {matches}",
            last=last_command,
            requeued=requeued,
        )
        self._execute(
            "DELETE FROM {commands} AS c WHERE name = %(name)s AND number < %(last)s"
            " AND NOT EXISTS (SELECT FROM {parked} AS p WHERE p.name = %(name)s"
            " AND p.number > %(passed)s AND {matches})",
            last=last_command,
            passed=passed,
        )

    def load(self, passed: int, place: Place | None = None, *, above: int = 0) -> Known:
        """
        Return what is parked; progress passes events up to number `passed`.

        Events beyond it will be read again, though not all in one batch. They are set aside under
        numbers that no progress reaches until they are parked anew, however often the relay begins
        again.

        From `place` on, some of them may never come again: `dovecote relay reconcile` begins where
        rows are gone, or it was given up for another cluster. These hold their keys under usual
        numbers `above` that of a command under way.
        """
        parameters, gone = _gone_at(place, self._events)
        self._execute(
            "UPDATE {parked} AS p SET number = p.number - %(passed)s + top.number"
            " FROM (SELECT greatest(max(number), %(aside)s) AS number FROM {parked}"
            " WHERE name = %(name)s) AS top WHERE p.name = %(name)s AND p.number > %(passed)s"
            " AND p.number < %(aside)s AND NOT {gone}",
            {"gone": gone},
            passed=passed,
            aside=ASIDE,
            **parameters,
        )
        self._execute(
            "UPDATE {parked} AS p SET number = top.number + own.nr"
            " FROM (SELECT greatest(max(number), %(passed)s, %(above)s)::bigint AS number"
            " FROM {parked} WHERE name = %(name)s AND number < %(aside)s) AS top,"
            " (SELECT p.number, row_number() OVER (ORDER BY p.number) AS nr"
            " FROM {parked} AS p WHERE p.name = %(name)s AND p.number >= %(aside)s AND {gone})"
            " AS own WHERE p.name = %(name)s AND p.number = own.number",
            {"gone": gone},
            passed=passed,
            above=above,
            aside=ASIDE,
            **parameters,
        )
        if self._elsewhere:
            self._set_aside(self._elsewhere)
        ((highest,),) = self._execute(
            "SELECT coalesce(max(number), 0) FROM {parked} WHERE name = %(name)s"
            " AND number < %(aside)s",
            aside=ASIDE,
        )
        ((count,),) = self._execute(
            "SELECT count(*) FROM (SELECT FROM {parked} WHERE name = %(name)s"
            " LIMIT %(most)s) AS found",
            most=COUNTED,
        )
        marks = self._execute(
            "SELECT {place}, p.id::text, code, reason, number FROM {parked} AS p"
            " WHERE name = %(name)s AND number >= %(aside)s",
            aside=ASIDE,
        )
        # Events that only wait behind others have no index here, however many there are.
        waited = self._execute(
            "SELECT topic, min(code), min(reason),"
            " extract(epoch FROM clock_timestamp() - min(parked_at))::float8 FROM"
            " (SELECT * FROM {parked} WHERE name = %(name)s AND code <> 'BEHIND'"
            " ORDER BY number DESC LIMIT %(most)s) AS newest"
            " WHERE code = ANY (%(codes)s) AND refused_by IS NULL GROUP BY topic",
            codes=list(OF_TOPIC),
            most=COUNTED,
        )
        return Known(
            count,
            {
                (_position(place, lsn), id_): EventMark(Reason(code, why), number)
                for place, lsn, id_, code, why, number in marks
            },
            {topic: (Reason(code, why), age) for topic, code, why, age in waited},
            highest,
        )

    def _set_aside(self, ids: Sequence[str]) -> None:
        """Set events aside that no later event waits for; another beginning takes that back."""
        self._execute(
            "UPDATE {parked} AS p SET number = top.number + own.nr"
            " FROM (SELECT greatest(max(number), %(aside)s) AS number FROM {parked}"
            " WHERE name = %(name)s) AS top,"
            " (SELECT number, row_number() OVER (ORDER BY number) AS nr FROM {parked}"
            " WHERE name = %(name)s AND number < %(aside)s AND id = ANY (%(ids)s::uuid[])) AS own"
            " WHERE p.name = %(name)s AND p.number = own.number",
            aside=ASIDE,
            ids=ids,
        )

    def remove(self, ids: Collection[str]) -> None:
        """Delete parked events that Kafka has, whoever published them."""
        self._execute(
            "DELETE FROM {parked} WHERE name = %(name)s AND id = ANY (%(ids)s::uuid[])",
            ids=list(ids),
        )

    def lanes(self) -> Iterator[Lane]:
        """
        Yield the lanes that are held; call it after `load`, and read no more than are needed.

        An index leads from each lane to the next one, however many events wait in it.
        """
        after: Lane = ("", b"")
        while True:
            found = list(
                self._execute(
                    "WITH RECURSIVE lanes AS ((SELECT topic, sha256(key) AS lane, number"
                    " FROM {parked} WHERE {held} AND (topic, sha256(key))"
                    " > (%(topic)s::text, %(lane)s::bytea)"
                    " ORDER BY topic, sha256(key), number LIMIT 1) UNION ALL"
                    " SELECT each.* FROM lanes, LATERAL (SELECT p.topic, sha256(p.key), p.number"
                    " FROM {parked} AS p WHERE {held}"
                    " AND (p.topic, sha256(p.key)) > (lanes.topic, lanes.lane)"
                    " ORDER BY p.topic, sha256(p.key), p.number LIMIT 1) AS each)"
                    " SELECT topic, lane, number < %(aside)s FROM lanes LIMIT %(most)s",
                    topic=after[0],
                    lane=after[1],
                    aside=ASIDE,
                    most=_MOST_KEYS,
                )
            )
            yield from ((topic, lane) for topic, lane, is_held in found if is_held)
            if len(found) < _MOST_KEYS:
                return
            after = (found[-1][0], found[-1][1])

    def held_topics(self) -> list[str] | None:
        """Return the topics with a held key; None if there are too many to list."""
        found = self._execute(
            "WITH RECURSIVE topics AS ((SELECT topic FROM {parked} WHERE {held}"
            " ORDER BY topic LIMIT 1) UNION ALL"
            " SELECT each.topic FROM topics, LATERAL (SELECT p.topic FROM {parked} AS p"
            " WHERE {held} AND p.topic > topics.topic ORDER BY p.topic LIMIT 1) AS each)"
            " SELECT topic FROM topics LIMIT %(most)s",
            most=_MOST_TOPICS,
        )
        topics = [topic for (topic,) in found]
        return topics if len(topics) < _MOST_TOPICS else None

    def held_among(self, lanes: Sequence[Lane]) -> list[int]:
        """Return the places of those of `lanes` that are held."""
        found: list[int] = []
        for first in range(0, len(lanes), _MOST_KEYS):
            part = lanes[first : first + _MOST_KEYS]
            rows = self._execute(
                "SELECT each.nr FROM unnest(%(topics)s::text[], %(lanes)s::bytea[])"
                " WITH ORDINALITY AS each (topic, lane, nr) WHERE EXISTS"
                " (SELECT FROM {parked} AS p WHERE {held} AND p.topic = each.topic"
                " AND sha256(p.key) = each.lane AND p.number < %(aside)s)",
                topics=[topic for topic, _ in part],
                lanes=[lane for _, lane in part],
                aside=ASIDE,
            )
            found += (first + nr - 1 for (nr,) in rows)
        return found

    def park(self, events: Sequence[EventToPark], first: int) -> str:
        """Park `events` under numbers from `first` on, and return where the log is then."""
        # Between two statements the server hears whether we are still there; in a pipeline it
        # does not (see `relay.postgres.lease`).
        number = first
        for part in _parts(events):
            if is_left(part[0].row):
                self._park_there(part[0], number)
            else:
                self._park(part, number)
            number += len(part)
        return end_of_log(self._conn)

    def _park(self, events: Sequence[EventToPark], first: int) -> None:
        given: list[object] = []
        for number, each in enumerate(events, first):
            _, id_, time, *content = each.row
            given += (number, each.replaces, *_place(each.row), id_, format_time(time), *content)
            given += (*each.reason, each.holds)
        query = self._filled(
            # Progress passes the event as soon as it is parked, so that must outlive crashes and
            # failovers.
            "WITH given (number, replaces, {columns}, code, reason, holds) AS (SELECT each.* FROM"
            " (SELECT set_config('synchronous_commit', 'on', true)) AS safe,"
            " (VALUES {given}) AS each),"
            " moved AS (UPDATE {parked} AS p SET number = g.number, code = g.code,"
            " reason = g.reason, holds = g.holds FROM given AS g"
            " WHERE p.name = %s AND p.number = g.replaces RETURNING g.number)"
            " INSERT INTO {parked} (name, number, {columns}, code, reason, holds)"
            " SELECT %s, number, {columns}, code, reason, holds FROM given AS g"
            " WHERE NOT EXISTS (SELECT FROM moved AS m WHERE m.number = g.number)",
            given=sql.SQL(", ").join([_GIVEN] * len(events)),
        )
        self._conn.execute(query, [*given, self._name, self._name])

    def requeue(self, topics: Sequence[str], after: int) -> Welcome | None:
        """
        Ask, like an operator, to requeue the events that are parked because of their topics.

        It asks for some of the events that were parked after number `after`. None: somebody else
        is giving commands just now.
        """
        with self._conn.transaction():
            turn = asking(self._name)
            if not holds.hold(self._conn, self._schema, turn):
                return None
            ((commands, events, last),) = self._execute(
                "WITH part AS (SELECT number, topic, key, holds, ticket FROM {parked}"
                " WHERE name = %(name)s AND code <> 'BEHIND' AND number > %(after)s"
                " AND topic = ANY (%(topics)s) AND code = ANY (%(codes)s)"
                " ORDER BY number LIMIT %(most)s),"
                " asked AS (INSERT INTO {commands} (name, action, topic, key, up_to)"
                " SELECT %(name)s, 'requeue', topic, key, up_to FROM (SELECT topic,"
                " CASE WHEN holds THEN key END AS key, max(ticket) AS up_to,"
                " min(number) AS first FROM part GROUP BY 1, 2) AS wanted"
                " ORDER BY first RETURNING number)"
                " SELECT (SELECT count(*) FROM asked), count(*), max(number) FROM part",
                topics=list(topics),
                codes=list(OF_TOPIC),
                after=after,
                most=_MOST_ROWS,
            )
            holds.let_go(self._conn, self._schema, turn)
            return Welcome(commands, None if events < _MOST_ROWS else last)

    def _park_there(self, event: EventToPark, number: int) -> None:
        """Park an event that is too large to be read, by copying it within the database."""
        place, _ = _place(event.row)
        self._execute(
            "WITH moved AS (UPDATE {parked} SET number = %(number)s, code = %(code)s,"
            " reason = %(reason)s, holds = %(holds)s"
            " WHERE name = %(name)s AND number = %(replaces)s RETURNING number)"
            " INSERT INTO {parked} (name, number, {columns}, code, reason, holds)"
            " SELECT %(name)s, %(number)s, position, NULL, {content}, %(code)s, %(reason)s,"
            " %(holds)s FROM {events} WHERE position = %(place)s AND id = %(id)s"
            " AND NOT EXISTS (SELECT FROM moved)",
            number=number,
            replaces=event.replaces,
            place=place,
            id=event.row[ID],
            code=event.reason.code,
            reason=event.reason.text,
            holds=event.holds,
        )

    def commands(self, *, of_aside: bool = True) -> list[Command]:
        """
        Return the oldest waiting commands; with `of_aside`, also those about events set aside.
        """
        return [
            Command(*row)
            for row in self._execute(
                "SELECT number, action, topic, key, ticket FROM {commands} AS c"
                " WHERE name = %(name)s AND (%(of_aside)s OR NOT EXISTS (SELECT FROM {parked} AS p"
                " WHERE p.name = %(name)s AND p.number >= %(aside)s AND {matches}))"
                " ORDER BY number LIMIT %(most)s",
                of_aside=of_aside,
                aside=ASIDE,
                most=_MOST_COMMANDS,
            )
        ]

    def due(self, command: Command, *, after: int, most: int, most_bytes: int) -> list[Due]:
        """Return the next events that `command` is about, in the order of the stream."""
        found = self._execute(
            "WITH due AS (SELECT p.number, coalesce(sum(coalesce(octet_length(p.value), 0)"
            " + coalesce(octet_length(p.key), 0) + coalesce(octet_length(p.subject), 0)"
            " + coalesce(pg_column_size(p.header_values), 0)) OVER (ORDER BY"
            " p.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes"
            " FROM {parked} AS p, {commands} AS c WHERE p.name = %(name)s"
            " AND c.number = %(command)s AND {matches} AND p.number > %(after)s"
            " ORDER BY p.number LIMIT %(most)s)"
            " SELECT p.number, {row} FROM {parked} AS p JOIN due USING (number)"
            " WHERE p.name = %(name)s AND due.bytes < %(most_bytes)s ORDER BY p.number",
            command=command.number,
            after=after,
            most=most,
            most_bytes=most_bytes,
            largest=self._largest,
        )
        return [Due(number, (_position(place, lsn), *row)) for number, place, lsn, *row in found]

    def published(self, events: Sequence[Due]) -> None:
        """Delete events that are published according to a committed progress record."""
        self._execute(
            "DELETE FROM {parked} WHERE name = %(name)s AND number = ANY (%(numbers)s)",
            numbers=[each.number for each in events],
        )

    def drop(self, command: Command) -> Dropped:
        """Delete events of `command`; and the command, once none of them is left."""
        ((events, is_done),) = self._execute(
            "WITH part AS MATERIALIZED (SELECT p.number FROM {parked} AS p, {commands} AS c"
            " WHERE p.name = %(name)s AND c.number = %(command)s AND {matches}"
            " AND p.ticket <= c.up_to LIMIT %(most)s),"
            " dropped AS (DELETE FROM {parked} AS p USING part"
            " WHERE p.name = %(name)s AND p.number = part.number RETURNING 1),"
            " done AS (DELETE FROM {commands} WHERE number = %(command)s"
            " AND (SELECT count(*) FROM part) < %(most)s)"
            " SELECT count(*), (SELECT count(*) FROM part) < %(most)s FROM dropped",
            command=command.number,
            most=_MOST_ROWS,
        )
        return Dropped(int(events), bool(is_done))

    def refused_again(self, command: Command, number: int, reason: Reason) -> None:
        """
        Count a failed attempt, after which nothing more of its key is published.

        That ends `command`, unless it is about events that hold no key.
        """
        self._execute(
            "WITH done AS (DELETE FROM {commands}"
            " WHERE number = %(command)s AND (key IS NOT NULL OR ticket IS NOT NULL))"
            " UPDATE {parked} SET attempt = attempt + 1, code = %(code)s, reason = %(reason)s,"
            " refused_by = %(command)s WHERE name = %(name)s AND number = %(number)s",
            command=command.number,
            number=number,
            code=reason.code,
            reason=reason.text,
        )

    def finish(self, command: Command) -> None:
        """Delete a command that has been carried out."""
        self._execute("DELETE FROM {commands} WHERE number = %(command)s", command=command.number)

    def is_held(self, key: Key) -> bool:
        """Return whether an event still holds `key`."""
        topic, value = key
        ((held,),) = self._execute(
            "SELECT EXISTS (SELECT FROM {parked} WHERE name = %(name)s AND holds"
            " AND topic = %(topic)s AND key = %(key)s)",
            topic=topic,
            key=value,
        )
        return bool(held)

    def key_of(self, ticket: int) -> Key | None:
        """Return the key that the event with this ticket holds, if it holds one."""
        for topic, key in self._execute(
            "SELECT topic, key FROM {parked} WHERE name = %(name)s AND ticket = %(ticket)s"
            " AND holds",
            ticket=ticket,
        ):
            return topic, key
        return None

    def _execute(
        self, query: str, more: Mapping[str, sql.Composable] = {}, /, **parameters: object
    ) -> Iterator[tuple[Any, ...]]:
        filled = self._filled(query, **more)
        cursor = self._conn.execute(filled, {"name": self._name, **parameters})
        return iter(cursor.fetchall() if cursor.description else ())

    def _filled(self, query: str, **more: sql.Composable) -> sql.Composed:
        return sql.SQL(query).format(
            parked=self._parked,
            commands=self._commands,
            matches=MATCHES,
            held=_HELD,
            row=_ROW,
            place=_PLACE,
            columns=_COLUMNS,
            content=_CONTENT,
            events=self._events,
            **more,
        )


def _gone_at(
    place: Place | None, events: sql.Composable
) -> tuple[Mapping[str, object], sql.Composable]:
    """Return the condition for parked events that surely do not come again after `place`."""
    if place is None:
        return {}, sql.SQL("false")
    if isinstance(place, LogPosition):
        return {"log": format_lsn(place.lsn)}, sql.SQL("coalesce(p.lsn < %(log)s::pg_lsn, false)")
    parameters = {
        "log": format_lsn(place.log),
        "since": str(place.since),
        "until": None if place.until is None else str(place.until),
        "position": place.position,
    }
    return parameters, _PASSED_IN_TABLE.format(events=events)


def _place(row: Row) -> tuple[int, str | None]:
    """Return the values of `position` and `lsn` for an event's position."""
    commit, number = log_place(row[POSITION])
    return number, format_lsn(commit) if commit else None


def _position(place: int, lsn: str | None) -> int:
    """Return the position from which `_place` made these values."""
    return place if lsn is None else log_number(parse_lsn(lsn), place)


def asking(name: str) -> str:
    """Return the turn of everyone that gives commands, so that they become visible in order."""
    return f"asking {name}"


def _parts(events: Sequence[EventToPark]) -> Iterator[Sequence[EventToPark]]:
    """Divide events into groups that one statement can park."""
    part: list[EventToPark] = []
    size = 0
    for each in events:
        length = size_of(each.row)
        if part and (is_left(each.row) or is_left(part[0].row)):
            yield part
            part, size = [], 0
        if part and (len(part) == _MOST_EVENTS or size + length > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    if part:
        yield part
