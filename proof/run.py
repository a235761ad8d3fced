"""Run the relays, disturb them, let all settle, and count."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack import Stack
from outbox import schema
from outbox.capture import use_table, use_wal
from outbox.errors import DovecoteError
from proof import writers
from proof.count import Verdict, judge
from proof.crew import Crew, Member
from proof.plan import Disturbance, Done, Kind, plan
from proof.reading import Reading

_TOPIC = "proof"
_PARTITIONS = 4
_LOOK_SECONDS = 0.01
_STUCK_SECONDS = 90.0
_SAY_SECONDS = 5.0


class Stuck(DovecoteError):
    """Nothing moved although nothing was in the way any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to run; it ends when either `seconds` or `kills` is reached."""

    directory: Path
    """For settings and logs."""

    seconds: float
    kills: int | None = None
    seed: int = 1
    capture: Literal["table", "wal", "switching"] = "table"
    relays: int = 3
    writers: int = 3
    pace: float = 0.01
    """Seconds that a writer rests between two transactions, on average."""

    longest_stall: float = 6.0
    """Seconds that a server or a network may be away."""

    settings: dict[str, object] = field(default_factory=dict)
    """Of the relays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done, and what came of it."""

    verdict: Verdict
    done: Done
    takeovers: int
    seconds: float

    def fields(self) -> dict[str, object]:
        """Return it as one flat mapping."""
        return {
            **asdict(self.verdict),
            **asdict(self.done),
            "takeovers": self.takeovers,
            "seconds": round(self.seconds, 1),
        }


Show = Callable[[str], None]


def run(options: Options, show: Show) -> Outcome:
    """
    Run the proof.

    Raises:
        DovecoteError: a relay gave up, or nothing moved any more.
    """
    show("starting Postgres and Kafka")
    with Stack() as stack:
        dsn = _prepare(stack, options.capture)
        crew = Crew(
            options.directory,
            dsn,
            stack.kafka.bootstrap,
            size=options.relays,
            settings=options.settings,
        )
        try:
            return _Proof(options, stack, crew=crew, dsn=dsn, show=show).run()
        finally:
            crew.end()


def _prepare(stack: Stack, capture: str) -> str:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as conn:
        conn.execute("CREATE DATABASE proof")
    dsn = psycopg.conninfo.make_conninfo(stack.postgres.dsn, dbname="proof")
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
    if capture == "wal":
        use_wal(dsn, schema.DEFAULT_SCHEMA)
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])[_TOPIC].result(30)
    return dsn


class _Proof:
    def __init__(
        self, options: Options, stack: Stack, *, crew: Crew, dsn: str, show: Show
    ) -> None:
        self._options, self._stack, self._crew, self._dsn = options, stack, crew, dsn
        self._show = show
        self._done = Done()
        self._writes_to_wal = options.capture == "wal"
        self._rest = threading.Event()  # is never set: it only waits

    def run(self) -> Outcome:
        began = time.monotonic()
        options = self._options
        switches = options.capture == "switching"
        with writers.at_work(
            self._dsn, _TOPIC, seed=options.seed, count=options.writers, pace=options.pace
        ):
            said = began
            for disturbance in plan(options.seed, options.longest_stall, switches=switches):
                self._disturb(disturbance)
                now = time.monotonic()
                if now - said > _SAY_SECONDS or disturbance.kind is not Kind.KILL:
                    self._show(self._progress(disturbance, now - began))
                    said = now
                enough = options.kills is not None and self._done.kills >= options.kills
                if enough or now - began > options.seconds:
                    break
        self._show("writers have stopped; waiting for the last events")
        verdict = self._settle()
        return Outcome(
            verdict=verdict,
            done=self._done,
            takeovers=self._crew.takeovers,
            seconds=time.monotonic() - began,
        )

    def _progress(self, last: Disturbance, seconds: float) -> str:
        done = self._done
        return (
            f"{seconds:6.1f} s  {done.kills} kills, {done.restarts} restarts, "
            f"{done.pauses} pauses, {done.stalls} stalls; last: {last.kind}"
        )

    def _disturb(self, disturbance: Disturbance) -> None:
        victim = self._active()
        self._rest.wait(disturbance.wait)
        match disturbance.kind:
            case Kind.KILL:
                self._crew.replace(victim)
                self._done.kills += 1
            case Kind.PAUSE:
                victim.pause()
                self._active()
                self._rest.wait(disturbance.wait)
                victim.resume()
                self._done.pauses += 1
            case Kind.STALL:
                victim.proxy.stall()
                self._rest.wait(disturbance.length)
                victim.proxy.resume()
                self._done.stalls += 1
            case Kind.CUT:
                victim.proxy.cut()
                self._done.stalls += 1
            case Kind.UNLOCK:
                self._crew.unlock()
                self._done.stalls += 1
            case Kind.SWITCH:
                self._switch()
            case _:
                self._disturb_server(disturbance)

    def _switch(self) -> None:
        self._writes_to_wal = not self._writes_to_wal
        switch = use_wal if self._writes_to_wal else use_table
        switch(self._dsn, schema.DEFAULT_SCHEMA)
        self._done.switches += 1

    def _disturb_server(self, disturbance: Disturbance) -> None:
        kafka, postgres = self._stack.kafka, self._stack.postgres
        if disturbance.kind is Kind.PAUSE_KAFKA:
            kafka.pause()
            self._rest.wait(disturbance.length)
            kafka.resume()
            self._done.pauses += 1
            return
        server = kafka if disturbance.kind is Kind.CRASH_KAFKA else postgres
        server.kill()
        self._rest.wait(disturbance.wait)
        server.start()
        self._done.restarts += 1

    def _active(self) -> Member:
        """Wait for an active relay."""
        deadline = time.monotonic() + _STUCK_SECONDS
        while (member := self._crew.active()) is None:
            if time.monotonic() > deadline:
                logs = "\n".join(each.child.tail() for each in self._crew.members)
                msg = f"no relay has become active within {_STUCK_SECONDS:g} s\n{logs}"
                raise Stuck(msg)
            self._rest.wait(_LOOK_SECONDS)
        return member

    def _settle(self) -> Verdict:
        """Wait until nothing more arrives, end the relays, read the rest, and judge."""
        wanted = writers.committed(self._dsn)
        total = sum(wanted.values())
        with Reading(self._stack.kafka.bootstrap, _TOPIC) as reading:
            moved, before = time.monotonic(), 0
            # More than wanted is no reason to wait; less is, as long as there is hope.
            while len(reading.seen) < total and time.monotonic() - moved < _STUCK_SECONDS:
                reading.go_on(1.0)
                if len(reading.seen) > before:
                    moved, before = time.monotonic(), len(reading.seen)
            self._crew.stop()
            reading.finish()
            return judge(wanted, reading.seen)
