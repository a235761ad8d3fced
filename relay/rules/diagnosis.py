"""Judge an outbox's state for its operator: one finding for each thing that was examined."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from relay.rules.crowding import ADVICE, Census, Limits
from relay.rules.places.lsn import GRANT, NOT_REPORTED
from relay.rules.places.progress import Lag, Origin, Place, Progress, refusal
from relay.rules.server.slot import (
    INIT,
    Beginning,
    Budget,
    Fault,
    Slot,
    fault,
    mismatch,
    place_fault,
    table_fault,
)
from relay.rules.server.standbys import fault as standby_fault

Level = Literal["ok", "warn", "fail"]

# The most topics and keys with too many parked events that get a line of their own.
_MOST_CROWDS = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a diagnosis; `resolve` is empty if there is nothing to do."""

    level: Level
    what: str
    resolve: str = ""

    def __str__(self) -> str:
        text = f"{self.level:4}  {self.what}"
        return f"{text}; {self.resolve}" if self.resolve else text


@dataclass(frozen=True, slots=True)
class Wanted:
    """The relay's settings, as far as a diagnosis compares them."""

    name: str
    capture: str
    progress_topic: str
    transaction_timeout_ms: int
    budget: Budget
    stall_after: float
    limits: Limits


@dataclass(frozen=True, slots=True)
class Server:
    """Postgres's answers."""

    version: int
    wal_level: str
    origin: Origin
    shared: int | None
    """The end of this server's log of progress's timeline, if the server is on another one."""
    state: str
    slot_name: str
    database: str
    began_at: int | None
    beginning: Beginning | None
    slot: Slot | None
    other_slots: frozenset[str]
    """Slots of the same outbox that belong to none of its shards."""
    retained: int
    leaving_open: int
    """Transactions that may still write to the log while it is being left."""
    role: str
    lacks: tuple[str, ...]
    """Rights that the role lacks and can publish without."""
    active: str | None
    claimed: bool
    """A relay of this name has published from this database."""
    put_back: str | None
    """Why this database is not in the state from which progress was made."""
    other_cluster: str | None
    """Why this is not the Kafka to which the outbox is published."""
    gone: tuple[str, ...]
    """Other names that have published from here, and under which no relay is active."""
    has_fsync: bool
    standbys: str
    """The standbys that commits wait for."""
    parked: Census
    """Events that cannot be published, and events that wait for those."""
    lag: Lag
    unpublished: str = ""
    """Why the server cannot read its log; empty: it can, or nothing is in the log."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Kafka's answers."""

    has_topic: bool
    progress: Progress | None
    longest_transaction_ms: int | None
    """None: we may not know it."""
    later: Progress | None
    """
    Progress as it was after the look at the server.

    It covers all that the server was told to forget. The server's state is newer than `progress`.
    """
    cluster: str = ""


def of_message(text: str) -> Finding:
    """Return a refusal as a finding; the text after the first `; ` says how to resolve it."""
    what, _, resolve = text.partition("; ")
    return Finding("fail", what, resolve)


# From this version on (as libpq numbers them), a slot can be synchronised to standbys.
_FAILOVER = 170_000


def of_server(server: Server, wanted: Wanted, place: Place | None) -> Iterator[Finding]:
    """Yield the findings from Postgres alone; `place` is the place in progress, if it is known."""
    if server.lacks:
        yield Finding(
            "warn",
            f"role {server.role} lacks {', '.join(server.lacks)}: published rows may stay, and "
            "keys of `outbox.Producer` in the outbox",
            f"run `dovecote init outbox --relay-role {shlex.quote(server.role)}` as its owner",
        )
    else:
        yield Finding("ok", f"role {server.role} has the rights of a relay")
    if not server.origin.timeline:
        yield Finding("warn", NOT_REPORTED, GRANT)
    wrong = mismatch(wanted.capture, server.state)
    yield _of(wrong) if wrong else Finding("ok", _READ[server.state])
    yield from _of_log(server, wanted, place)
    if not server.has_fsync:
        yield Finding(
            "warn",
            "the server has fsync = off: a crash of it can take back what is published",
            "set it to on, and reload the server",
        )
    if server.parked.events:
        yield Finding(
            "warn",
            f"events parked: {server.parked.events}, of which {server.parked.waiting} only wait "
            "for an earlier one of their key",
            "see `dovecote relay parked list`",
        )
        crowds = server.parked.crowds
        for crowd in crowds[:_MOST_CROWDS]:
            said = crowd.said(wanted.limits)
            yield Finding("warn", said, ADVICE)
        if len(crowds) > _MOST_CROWDS:
            more = f"{len(crowds) - _MOST_CROWDS} more topics and keys have too many parked events"
            yield Finding("warn", more, "resolve the first ones, and look again")
    if server.gone:
        yield Finding(
            "warn",
            f"no relay runs under {', '.join(server.gone)}, which has published from this outbox: "
            "published rows are kept for it, and keys of `outbox.Producer` wait for it",
            "start that relay; or, if there is none of that name any more, delete its line: see "
            "docs/relay.md#storage",
        )
    if server.active is None:
        yield Finding("warn", "no relay is active", "run `dovecote relay run`")
    else:
        yield Finding("ok", f"the active relay is at {server.active}")


_READ = {
    "table": "events are read from the table",
    "wal": "events are read from the write-ahead log",
    "leaving": "events are written to the table, and read from the write-ahead log for now",
}


def _of(wrong: Fault) -> Finding:
    return Finding("fail", wrong.what, wrong.resolve)


def _of_log(server: Server, wanted: Wanted, place: Place | None) -> Iterator[Finding]:
    """Yield the findings about the slot."""
    slot, beginning = server.slot, server.beginning
    # A relay that has published nothing and has no slot may have the wrong name.
    others = server.other_slots if slot is not None or place is not None else ()
    for name in sorted(others):
        yield Finding(
            "warn",
            f"replication slot {name} holds back the write-ahead log, and is of another number of "
            "shards",
            "a running relay drops it",
        )
    if beginning is None:
        if slot is not None:
            yield Finding(
                "warn",
                f"replication slot {slot.name} holds back {server.retained:,} bytes of the "
                "write-ahead log, and is not needed any more",
                "a running relay drops it, if its role has REPLICATION",
            )
        return
    if server.wal_level != "logical":
        yield Finding(
            "fail",
            f"the server has wal_level = {server.wal_level}",
            "set it to logical and restart the server",
        )
    if taken_for_standby := standby_fault(server.standbys):
        yield _of(taken_for_standby)
    wrong = fault(
        slot,
        server.slot_name,
        server.database,
        beginning,
        place=place,
        others=server.other_slots,
    )
    if wrong is not None:
        yield _of(wrong)
    if wrong is not None or slot is None:
        return
    yield from _of_reading(slot, server, wanted)


def _of_reading(slot: Slot, server: Server, wanted: Wanted) -> Iterator[Finding]:
    if server.unpublished:
        # On the way back into the table that command would turn round.
        to = "table" if server.state == "leaving" else "wal"
        yield Finding("fail", server.unpublished, f"run `dovecote init outbox --capture {to}`")
    yield _of_slot(slot, server, wanted)
    if server.version >= _FAILOVER and slot.failover is False:
        yield Finding(
            "warn",
            f"replication slot {slot.name} is not synchronised to standbys: after a failover it "
            "is missing",
            f"with the relay stopped and all published, drop it and `{INIT} --accept-gap`",
        )
    if server.state == "leaving":
        yield _of_leaving(server.leaving_open)


def _of_slot(slot: Slot, server: Server, wanted: Wanted) -> Finding:
    if warning := wanted.budget.warning(slot, server.retained):
        return Finding("warn", warning, "is the relay, Kafka, or a long transaction in the way?")
    if slot.active_pid is None:
        if server.active is None:
            return Finding(
                "warn",
                f"replication slot {slot.name} holds back {server.retained:,} bytes, and nobody "
                "reads it",
                "run `dovecote relay run`",
            )
        # It waits for a topic or for Kafka, and has released the slot meanwhile.
        return Finding(
            "warn",
            f"replication slot {slot.name} holds back {server.retained:,} bytes, and the active "
            "relay does not read it",
            "what does the relay's log say?",
        )
    return Finding("ok", f"replication slot {slot.name} holds back {server.retained:,} bytes")


def _of_leaving(count: int) -> Finding:
    if count == 0:
        return Finding("ok", "no transaction keeps the relay in the log")
    return Finding(
        "warn",
        f"{count} transactions that are open may still write to the log",
        "the relay leaves it when those have ended that began before the switch: see "
        "pg_stat_activity and pg_prepared_xacts",
    )


class Wait(NamedTuple):
    """One of our sessions waits for a lock of another one."""

    pid: int
    name: str
    holder: int
    role: str | None
    holder_name: str | None


def of_waits(waits: Sequence[Wait]) -> Iterator[Finding]:
    """Yield the findings about sessions that hold up others."""
    for each in waits:
        yield Finding(
            "warn",
            f"session {each.pid} ({each.name}) waits for a lock that session {each.holder} of "
            f"role {each.role} ({each.holder_name}) has",
            f"see whether that may end, and then: SELECT pg_terminate_backend({each.holder})",
        )


def of_turn(holder: str | None) -> Iterator[Finding]:
    """Yield the finding about a session that changes the capture or the number of shards."""
    if holder is not None:
        yield Finding(
            "warn",
            f"the turn to change the capture is taken: {holder}",
            "`dovecote init outbox --capture` and `dovecote relay reshard` wait for it",
        )


def of_orphans(names: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings about slots whose outbox is gone."""
    for name in names:
        yield Finding(
            "warn",
            f"replication slot {name} holds back the write-ahead log, and its outbox was dropped",
            f"if no event of it is wanted any more: SELECT pg_drop_replication_slot('{name}')",
        )


def of_broker(broker: Broker, wanted: Wanted) -> Iterator[Finding]:
    """Yield the findings from Kafka alone."""
    topic, longest = wanted.progress_topic, broker.longest_transaction_ms
    if broker.has_topic:
        yield Finding("ok", f"progress topic {topic} has one partition and forgets nothing")
    if longest is None:
        yield Finding("ok", "the broker does not report its transaction.max.timeout.ms")
    elif longest < wanted.transaction_timeout_ms:
        yield Finding(
            "fail",
            f"transaction_timeout is {wanted.transaction_timeout_ms} ms, longer than the "
            f"broker's transaction.max.timeout.ms ({longest})",
            "set transaction_timeout to less, or raise the broker's limit",
        )
    else:
        yield Finding("ok", f"the broker allows transactions of {longest} ms")


def of_both(server: Server, broker: Broker, wanted: Wanted) -> Iterator[Finding]:
    """Yield the findings from both together: whether progress fits, and how far it lags."""
    progress, later = broker.progress, broker.later
    if server.other_cluster is not None:
        yield of_message(server.other_cluster)
        return
    if later is None and server.claimed:
        yield Finding(
            "fail",
            f"outbox {wanted.name!r} has published from this database, but progress topic "
            f"{wanted.progress_topic} knows nothing of it: it was deleted or trimmed, or this is "
            "another Kafka",
            "restore the topic; or give this relay a `name` of its own, to publish everything "
            "that the outbox holds again",
        )
        return
    if progress is None:
        yield Finding("ok", f"outbox {wanted.name!r} has not published anything yet")
    elif reason := refusal(progress, server.origin, server.shared) or server.put_back:
        yield of_message(reason)
        return
    else:
        yield Finding("ok", f"progress is at {progress.cursor}")
    wrong = _misplaced(server, later)
    if wrong is not None:
        yield _of(wrong)
        return
    yield _of_lag(server, wanted)


def _misplaced(server: Server, progress: Progress | None) -> Fault | None:
    place = progress.cursor if progress else None
    if server.beginning is None:
        return table_fault(server.began_at, place)
    slot, beginning = server.slot, server.beginning
    if slot is None or fault(slot, server.slot_name, server.database, beginning, place=place):
        return None
    return place_fault(slot, beginning, place)


def _of_lag(server: Server, wanted: Wanted) -> Finding:
    rows, seconds, size = server.lag.rows, server.lag.seconds, server.lag.bytes
    if rows and seconds > wanted.stall_after:
        return Finding(
            "warn",
            f"events waiting: {rows}, the oldest for {seconds:.1f} s",
            "is a relay running, and what does its log say?",
        )
    in_log = [] if size is None else [f"{size:,} bytes of the log are after progress"]
    in_table = [f"events waiting: {rows}"] if rows else []
    return Finding("ok", ", ".join(in_log + in_table) or "no event waits")
