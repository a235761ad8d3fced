"""Ask Postgres and Kafka for the facts of a diagnosis, and change nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, LiteralString

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    ConfigResource,
    ResourceType,
)
from psycopg import sql

from outbox import schema as outbox_schema
from outbox.errors import (
    BadSettings,
    DovecoteError,
    NoClient,
    NotAllowed,
    NoToken,
    first_line,
)
from outbox.kafka import kafka_logger
from outbox.schema import holds
from outbox.schema.belongings import OURS
from outbox.schema.slots import without
from outbox.tokens.source import client_of, for_client, source_of
from relay.errors import Outage, Refused, RelayError
from relay.kafka.progress_topic import ProgressTopic, client_properties
from relay.operating import clocks
from relay.postgres.capture.catalog import look, orphans, prepared, running
from relay.postgres.capture.lag import lag_of
from relay.postgres.capture.replication import require_replication
from relay.postgres.capture.table import TableCapture
from relay.postgres.census import census
from relay.postgres.claims import Claim
from relay.postgres.connect import connect
from relay.postgres.lease import active, role_of
from relay.postgres.shard_count import require_noted
from relay.postgres.timeline import shared
from relay.rules.crowding import Limits
from relay.rules.diagnosis import (
    Broker,
    Finding,
    Server,
    Wait,
    Wanted,
    of_both,
    of_broker,
    of_message,
    of_orphans,
    of_server,
    of_turn,
    of_waits,
)
from relay.rules.places.fit import cluster_refusal
from relay.rules.places.progress import Origin, Progress
from relay.rules.server.slot import Budget
from relay.rules.sharding import Shard, divided
from relay.settings import RelaySettings

# How long the broker may take for a second look, in seconds.
_AGAIN = 10.0

_client_log = kafka_logger("dovecote.relay.kafka")

# Our own sessions, and all others that wait for a lock on a table of the schema.
_WAITS = """
SELECT w.pid, coalesce(a.application_name, ''), b.pid, b.usename::text, b.application_name
  FROM (SELECT DISTINCT l.pid FROM pg_locks AS l WHERE NOT l.granted) AS w
  JOIN pg_stat_activity AS a ON a.pid = w.pid AND a.datname = current_database()
 CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS blocking (pid)
  JOIN pg_stat_activity AS b ON b.pid = blocking.pid
 WHERE a.application_name LIKE 'dovecote%%'
    OR EXISTS (SELECT FROM pg_locks AS o JOIN pg_class AS c ON c.oid = o.relation
                      JOIN pg_namespace AS n ON n.oid = c.relnamespace
                WHERE o.pid = w.pid AND n.nspname = %s)
 ORDER BY 1, 3 LIMIT 20
"""

# The rights without which a relay does not start, and those that it needs only to make room and to
# answer producers.
_TO_PUBLISH = (
    *((name, "SELECT") for name in ("events", "migrations", "claims", "reading", "identity")),
    *((name, "EXECUTE") for name in ("renew_claim", "begin_claim")),
    *(("parked", kind) for kind in ("SELECT", "INSERT", "UPDATE", "DELETE")),
    *(("parked_commands", kind) for kind in ("SELECT", "INSERT", "DELETE")),
    *((name, "EXECUTE") for name in ("settle_shards", "hold", "let_go", "holding")),
)
_TO_MAKE_ROOM = tuple(
    (name, "EXECUTE")
    for name in ("confirm", "confirm_drained", "leaves", "write_to_leaf", "truncate_leaf")
)


def misnumbered(settings: RelaySettings) -> Finding | None:
    """Return what is wrong with `shards`: with another number, each shard would look new."""
    try:
        with connect(settings.dsn, purpose="doctor") as conn:
            outbox_schema.require(conn, settings.schema_name)
            require_noted(conn, settings.schema_name, settings.own_shards()[0])
    except Refused as error:
        return of_message(str(error))
    except (psycopg.Error, DovecoteError):
        # `examine` meets the same error, and reports it among everything else.
        return None
    return None


def examine(
    settings: RelaySettings, shard: Shard | None = None, *, timeout: float = 10.0
) -> Iterator[Finding]:
    """Yield the findings about an outbox, or about one shard of it, the servers first."""
    about = partial(outbox_schema.about, settings.schema_name)
    for found in _examine(settings, shard, timeout):
        yield replace(found, what=about(found.what), resolve=about(found.resolve))
    if shard is None or shard.number == 0:
        yield from of_orphans(_orphans(settings))
        yield from _of_locks(settings)


def _of_locks(settings: RelaySettings) -> Iterator[Finding]:
    """Yield who holds up whom in the outbox's schema."""
    schema = settings.schema_name
    try:
        with connect(settings.dsn, purpose="doctor") as conn:
            rows = conn.execute(_WAITS, [schema]).fetchall()
            holder = holds.held_by(conn, schema, holds.CAPTURE)
    except (psycopg.Error, DovecoteError):
        return  # already reported for the outbox itself
    yield from of_waits([Wait(*row) for row in rows])
    yield from of_turn(holder)


def _orphans(settings: RelaySettings) -> list[str]:
    """Return the slots of dropped outboxes; this outbox may be one of them."""
    try:
        with connect(settings.dsn, purpose="doctor") as conn:
            return orphans(conn)
    except (psycopg.Error, DovecoteError):
        return []  # already reported for the outbox itself


def _examine(settings: RelaySettings, shard: Shard | None, timeout: float) -> Iterator[Finding]:
    if shard is not None:
        settings = settings.of(shard)
    wanted = Wanted(
        name=settings.name,
        capture=settings.capture,
        progress_topic=settings.progress_topic,
        transaction_timeout_ms=int(settings.transaction_timeout.total_seconds() * 1000),
        budget=Budget(settings.wal.warn_bytes, settings.wal.stop_bytes),
        stall_after=settings.stall_after.total_seconds(),
        limits=Limits(settings.park_most, settings.park_most_of_key),
    )
    broker: Broker | None = None
    try:
        broker = _broker(settings, timeout)
    except (RelayError, NoClient, NoToken, BadSettings) as error:
        yield _of_error(error)
    else:
        if (source := source_of(settings.kafka)) is not None:
            yield Finding("ok", f"{source.name} gives a token for Kafka")
        yield from of_broker(broker, wanted)
    try:
        server = _server(settings, shard, broker, wanted)
    except psycopg.Error as error:
        yield Finding("fail", f"Postgres: {first_line(error)}", "is `dsn` right?")
        return
    except DovecoteError as error:
        yield of_message(str(error))
        return
    later: Progress | None = None
    if broker is not None:
        try:
            # Meanwhile an active relay has confirmed more, and everything it confirmed was in
            # progress.
            later = _later(settings, timeout)
            broker = replace(broker, later=later)
        except (RelayError, NoClient) as error:
            yield _of_error(error)
            broker = None
    yield from of_server(server, wanted, later.cursor if later else None)
    yield from clocks.look(settings, timeout)
    if broker is not None:
        yield from of_both(server, broker, wanted)


def _of_error(error: DovecoteError) -> Finding:
    """Return an error of the broker as a finding."""
    if isinstance(error, NoClient):
        return Finding("fail", str(error), "correct `[kafka]`, or see whether files are replaced")
    if isinstance(error, NoToken | BadSettings):
        return Finding("fail", str(error), "correct `[kafka.identity]`, or see why it is away")
    if isinstance(error, Outage):
        return Finding("fail", str(error), "is it there, and is `bootstrap.servers` right?")
    return of_message(str(error))


def _broker(settings: RelaySettings, timeout: float) -> Broker:
    topic = ProgressTopic(settings.progress_topic, settings.kafka, timeout=timeout)
    has_topic = topic.check()
    progress = topic.peek(settings.name) if has_topic else None
    longest, cluster = _longest_transaction(settings, timeout), topic.cluster()
    return Broker(has_topic, progress, longest, progress, cluster)


def _later(settings: RelaySettings, timeout: float) -> Progress | None:
    """Return progress as it is now; its topic may have been created meanwhile."""
    topic = ProgressTopic(settings.progress_topic, settings.kafka, timeout=timeout)
    return topic.peek(settings.name) if topic.exists() else None


def _longest_transaction(settings: RelaySettings, timeout: float) -> int | None:
    """Return the broker's transaction.max.timeout.ms, None if it does not tell us."""
    admin = client_of(AdminClient, for_client(client_properties(settings.kafka)), _client_log)
    try:
        number = next(iter(admin.list_topics(timeout=timeout).brokers))
        resource = ConfigResource(ResourceType.BROKER, str(number))
        found = admin.describe_configs([resource], request_timeout=timeout)[resource].result()
        return int(found["transaction.max.timeout.ms"].value)
    except KafkaException:
        # Not everybody may ask. If the timeout is too long, the relay will report it.
        return None


def _server(
    settings: RelaySettings, shard: Shard | None, broker: Broker | None, wanted: Wanted
) -> Server:
    schema, progress = settings.schema_name, broker.progress if broker else None
    with connect(settings.dsn, purpose="doctor") as conn:
        _require_rights(conn, schema)
        outbox_schema.require(conn, schema)
        found = look(conn, schema, shard)
        if found.beginning is not None:
            _require_rights_in_log(conn, settings.dsn, schema)
        version, wal_level, role = _one(
            conn,
            "SELECT current_setting('server_version_num')::int,"
            # A slot may have raised the level that is set.
            " coalesce(current_setting('effective_wal_level', true),"
            " current_setting('wal_level')), current_user::text",
        )
        origin = _origin(settings, is_read=found.state == "table")
        claim = Claim(conn, schema, settings.name)
        held = claim.read(origin)
        return Server(
            version=version,
            wal_level=wal_level,
            role=role,
            lacks=tuple(_lacking(conn, schema, _TO_MAKE_ROOM)),
            origin=origin,
            shared=_shared(settings, progress, origin),
            state=found.state,
            slot_name=found.slot_name,
            database=found.installed.database,
            began_at=found.began_at,
            beginning=found.beginning,
            slot=found.slot,
            other_slots=found.others,
            retained=found.retained,
            leaving_open=len(running(conn)) + len(prepared(conn)),
            active=active(conn, role_of(schema, settings.name)),
            # A relay that ended before its first progress has published nothing.
            claimed=held is not None and held.began,
            put_back=_put_back(settings, claim, origin, progress),
            other_cluster=cluster_refusal(held, settings.name, broker.cluster) if broker else None,
            gone=_gone(conn, settings, shard),
            has_fsync=found.has_fsync,
            standbys=found.standbys,
            parked=census(conn, schema, settings.name, wanted.limits),
            lag=lag_of(conn, schema, shard, progress.cursor if progress else None),
            unpublished=without(conn, found.installed.publication) if found.beginning else "",
        )


def _put_back(
    settings: RelaySettings, claim: Claim, origin: Origin, progress: Progress | None
) -> str | None:
    """Return why the database is not in the state from which progress was made, or None."""
    if progress is None or claim.misfit(progress, claim.read(origin)) is None:
        return None
    # An active relay may have gone on since the first look, by more than the database remembers.
    again = _later(settings, _AGAIN)
    return claim.misfit(again, claim.read(origin)) if again else None


def _gone(
    conn: psycopg.Connection[Any], settings: RelaySettings, shard: Shard | None
) -> tuple[str, ...]:
    """
    Return names with a line in `relays` that are not ours and under which no relay is active.
    """
    schema = settings.schema_name
    (may_see,) = _one(
        conn,
        "SELECT has_table_privilege(%s, 'SELECT')",
        sql.Identifier(schema, "relays").as_string(),
    )
    if not may_see:
        return ()  # the role was set up before relays used this table
    ours = {each.name for each in divided(shard.outbox, shard.of)} if shard else {settings.name}
    query = sql.SQL("SELECT name FROM {}.relays ORDER BY name").format(sql.Identifier(schema))
    names = [row[0] for row in conn.execute(query).fetchall() if row[0] not in ours]
    return tuple(name for name in names if active(conn, role_of(schema, name)) is None)


def _shared(settings: RelaySettings, progress: Progress | None, origin: Origin) -> int | None:
    if progress is None or not 0 < progress.timeline < origin.timeline:
        return None
    return shared(settings.dsn, old=progress.timeline, new=origin.timeline)


def _require_rights(conn: psycopg.Connection[Any], schema: str) -> None:
    """
    Check that the role has the rights of every relay, on the tables and functions that exist.
    """
    if lacking := _lacking(conn, schema, _TO_PUBLISH):
        user = conn.info.user
        msg = (
            f"role {user} lacks {', '.join(lacking)}; "
            f"{outbox_schema.advice('relay', user, schema)}"
        )
        raise NotAllowed(msg)


def _lacking(
    conn: psycopg.Connection[Any], schema: str, needed: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the rights in `needed` that the role lacks, on existing tables and functions."""
    functions = list(outbox_schema.belongings().functions)
    rows = conn.execute(
        "WITH needed AS (SELECT * FROM unnest(%s::text[], %s::text[]) AS n (name, kind)),"  # noqa: S608  # a constant
        " here AS (SELECT oid FROM pg_namespace WHERE nspname = %s)"
        " SELECT kind || ' on ' || name FROM needed, pg_class AS c"
        " WHERE relnamespace = (SELECT oid FROM here) AND relname = name"
        # The server evaluates conditions in any order, and refuses a kind that tables do not have.
        " AND CASE kind WHEN 'EXECUTE' THEN false ELSE NOT has_table_privilege(c.oid, kind) END"
        " UNION SELECT kind || ' on ' || name FROM needed, pg_proc AS p"
        f" WHERE pronamespace = (SELECT oid FROM here) AND proname = name AND {OURS} (%s)"
        " AND kind = 'EXECUTE' AND NOT has_function_privilege(p.oid, 'EXECUTE')"
        " UNION SELECT 'USAGE on the schema' FROM here"
        " WHERE NOT has_schema_privilege(oid, 'USAGE')"
        " ORDER BY 1",
        [[name for name, _ in needed], [kind for _, kind in needed], schema, functions],
    ).fetchall()
    return [row[0] for row in rows]


def _require_rights_in_log(conn: psycopg.Connection[Any], dsn: str, schema: str) -> None:
    """Check that the role has the rights to read the log."""
    user = conn.info.user
    (may_read,) = _one(
        conn,
        "SELECT has_table_privilege(c.oid, 'SELECT') FROM pg_class c WHERE c.relname = 'capture'"
        " AND c.relnamespace = to_regnamespace(quote_ident(%s))",
        schema,
    )
    require_replication(dsn)
    if not may_read:
        advice = outbox_schema.advice("relay", user, schema)
        msg = f"role {user} lacks SELECT on capture; {advice}"
        raise NotAllowed(msg)


def _one(conn: psycopg.Connection[Any], query: LiteralString, *params: object) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = conn.execute(query, params).fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    return row


def _origin(settings: RelaySettings, *, is_read: bool) -> Origin:
    """Return which database this is, if its table can be read."""
    capture = TableCapture(settings.dsn, settings.schema_name, batch_rows=1, batch_bytes=1)
    try:
        if is_read:
            capture.require_own_events()
        return capture.origin()
    finally:
        capture.close()
