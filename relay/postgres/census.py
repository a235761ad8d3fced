"""Count the parked events of an outbox, by topic and by key."""

from typing import Any

import psycopg
from psycopg import sql

from relay.rules.crowding import Census, Crowd, Limits

# The most topics and keys beyond their limits that one look names.
_MOST = 1_000
# The bytes of a key that are fetched.
_KEY_BYTES = 64

_COUNT = sql.SQL(
    "WITH counted AS (SELECT grouping(topic, sha256(key)) AS kind, topic, min(number) AS first,"
    " count(*) AS events, count(*) FILTER (WHERE code = 'BEHIND') AS waiting"
    " FROM {parked} WHERE name = %(name)s"
    " GROUP BY GROUPING SETS ((), (topic), (topic, sha256(key)))"
    " HAVING grouping(topic, sha256(key)) = 3"
    " OR grouping(topic, sha256(key)) = 1 AND count(*) > %(topic)s"
    # Events without a key wait for none.
    " OR grouping(topic, sha256(key)) = 0 AND count(key) > %(key)s"
    " ORDER BY 1 DESC, events DESC LIMIT %(most)s)"
    " SELECT kind, c.topic, CASE kind WHEN 0 THEN (SELECT substring(p.key FROM 1 FOR %(bytes)s)"
    " FROM {parked} AS p WHERE p.name = %(name)s AND p.number = c.first) END, events, waiting"
    " FROM counted AS c ORDER BY kind DESC, events DESC"
)


def census(conn: psycopg.Connection[Any], schema: str, name: str, limits: Limits) -> Census:
    """Return how many events are parked under `name`, and where they are beyond `limits`."""
    rows = conn.execute(
        _COUNT.format(parked=sql.Identifier(schema, "parked")),
        {
            "name": name,
            "topic": limits.topic,
            "key": limits.key,
            "most": _MOST,
            "bytes": _KEY_BYTES,
        },
    ).fetchall()
    events, waiting = next((tuple(row[3:]) for row in rows if row[0] == _ALL), (0, 0))
    found = [(row[0], Crowd(row[1], row[2], row[3], row[4])) for row in rows if row[0] != _ALL]
    return Census(
        events,
        waiting,
        [each for kind, each in found if kind == _TOPIC],
        [each for kind, each in found if kind != _TOPIC],
    )


# The kinds that grouping() returns: all events, and the events of a topic.
_ALL, _TOPIC = 3, 1
