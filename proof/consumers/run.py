"""Run consumers, disturb them, let them settle, and count."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dedup.inbox import schema as inbox_schema
from dovecote.devstack import Stack
from outbox.errors import DovecoteError
from proof.consumers import writing
from proof.consumers.count import EventName, Verdict, judge
from proof.consumers.crew import Members
from proof.consumers.plan import Disturbance, Done, Kind, plan
from proof.reading import Reading

_COMPACTED, _TRANSACTIONAL = "proof-compacted", "proof-transactional"
_PARTITIONS = 4
_SKEW = 200
_MOST, _FEWEST = 5, 2
_STUCK_SECONDS = 90.0
# A busy machine compacts late; without any compaction the storm ends after this, and says 0.
_COMPACTS_SECONDS = 120.0

Show = Callable[[str], None]


class GaveUp(DovecoteError):
    """A consumer ended by itself, or nothing moved although nothing was in the way any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parameters of a run."""

    directory: Path
    """The folder for settings, logs and deliveries."""

    seconds: float
    seed: int = 1
    members: int = 3
    pace: float = 0.05
    """The average pause of a producer between two writes, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The disturbances of a run, and its result."""

    verdict: Verdict
    done: Done
    compacted: int
    """The number of records that compaction removed."""
    seconds: float

    def fields(self) -> dict[str, object]:
        """Return it as one flat mapping."""
        return {
            **asdict(self.verdict),
            **asdict(self.done),
            "compacted": self.compacted,
            "seconds": round(self.seconds, 1),
        }


def run(options: Options, show: Show) -> Outcome:
    """
    Run the proof.

    Raises:
        DovecoteError: a consumer gave up, or nothing moved any more.
    """
    show("starting Postgres and Kafka")
    with Stack() as stack:
        dsn = _prepare(stack)
        members = Members(options.directory, _settings(stack.kafka.bootstrap), dsn)
        try:
            return _Proof(options, stack.kafka.bootstrap, dsn, members=members, show=show).run()
        finally:
            members.end()


def _settings(bootstrap: str) -> dict[str, object]:
    return {
        "topics": [_COMPACTED, _TRANSACTIONAL],
        "group": "proof",
        "policy": "every",
        "value": "raw",
        "concurrency": 16,
        "max_skew": _SKEW,
        "drain": "5s",
        "kafka": {
            "bootstrap.servers": bootstrap,
            # The shortest that the broker accepts, so that the loss of a member is noticed sooner.
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
        },
    }


def _prepare(stack: Stack) -> str:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as conn:
        conn.execute("CREATE DATABASE proof")
    dsn = psycopg.conninfo.make_conninfo(stack.postgres.dsn, dbname="proof")
    with psycopg.connect(dsn) as conn:
        inbox_schema.install(conn)
        conn.execute(
            "CREATE TABLE effects (nr bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),"
            " topic text NOT NULL, key text NOT NULL, number bigint NOT NULL)"
        )
    compaction = {
        "cleanup.policy": "compact",
        "segment.ms": "2000",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "2000",
    }
    topics = [
        NewTopic(_COMPACTED, _PARTITIONS, config=compaction),
        NewTopic(_TRANSACTIONAL, _PARTITIONS),
    ]
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(30)
    return dsn


class _Proof:
    def __init__(
        self, options: Options, bootstrap: str, dsn: str, *, members: Members, show: Show
    ) -> None:
        self._options, self._bootstrap, self._dsn = options, bootstrap, dsn
        self._members, self._show = members, show
        self._done = Done()
        self._rest = threading.Event()  # never set, only waited for

    def run(self) -> Outcome:
        began = time.monotonic()
        options, members = self._options, self._members
        for _ in range(options.members):
            members.add()
        at_work = writing.Writing(self._bootstrap, seed=options.seed, pace=options.pace)
        with writing.at_work(at_work, _COMPACTED, _TRANSACTIONAL):
            for disturbance in plan(options.seed):
                self._disturb(disturbance)
                seconds = time.monotonic() - began
                self._show(f"{seconds:6.1f} s  {self._done}; {len(members.running)} members")
                enough = seconds > options.seconds and self._done.has_all
                is_over = seconds > options.seconds + _COMPACTS_SECONDS
                if enough and (is_over or self._is_compacted()):
                    break
        self._show("producers have stopped; waiting for the last effects")
        held = self._settle()
        verdict = judge(held, at_work.written, self._effects(), members.deliveries(), skew=_SKEW)
        return Outcome(
            verdict=verdict,
            done=self._done,
            compacted=at_work.written.total() - len(held),
            seconds=time.monotonic() - began,
        )

    def _disturb(self, disturbance: Disturbance) -> None:
        self._rest.wait(disturbance.wait)
        members = self._members
        if (fallen := members.fallen()) is not None:
            raise GaveUp(fallen.said())
        victim = members.running[int(disturbance.victim * len(members.running))]
        match disturbance.kind:
            case Kind.KILL:
                members.kill(victim)
                members.add()
                self._done.kills += 1
            case Kind.PAUSE:
                victim.pause()
                self._rest.wait(disturbance.length)
                victim.resume()
                self._done.pauses += 1
            case Kind.JOIN if len(members.running) < _MOST:
                members.add()
                self._done.joins += 1
            case Kind.LEAVE if len(members.running) > _FEWEST:
                members.leave(victim)
                self._done.leaves += 1
            case _:
                pass

    def _is_compacted(self) -> bool:
        """Whether the number of a key is gone; Kafka only compacts now and then."""
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for topic, key, number in self._held():
            if topic == _COMPACTED:
                numbers[key].append(number)
        return any(max(each) >= len(each) for each in numbers.values())

    def _held(self) -> set[EventName]:
        """Return the topics' final contents."""
        found: set[EventName] = set()
        for topic in (_COMPACTED, _TRANSACTIONAL):
            with Reading(self._bootstrap, [topic]) as reading:
                reading.finish()
                found |= {(topic, key, number) for key, number, _ in reading.seen}
        return found

    def _settle(self) -> set[EventName]:
        """Wait until all that is in the topics has had its effects; end the members, return it."""
        left, moved = -1, time.monotonic()
        # Asked again each time, because a record that compaction removes unread need not be
        # handled.
        while missing := len((held := self._held()) - set(self._effects())):
            if missing != left:
                left, moved = missing, time.monotonic()
            if time.monotonic() - moved > _STUCK_SECONDS:
                break
            self._rest.wait(2.0)
        while self._members.running:
            self._members.leave(self._members.running[0])
        return held

    def _effects(self) -> list[EventName]:
        with psycopg.connect(self._dsn) as conn:
            return conn.execute("SELECT topic, key, number FROM effects ORDER BY nr").fetchall()
