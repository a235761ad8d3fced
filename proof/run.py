"""Run the relays, disturb them, let them settle, and count."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import psycopg
from psycopg.conninfo import make_conninfo

from outbox import schema
from outbox.errors import DovecoteError
from outbox.schema.capture import use_wal
from proof import writers
from proof.auditing import RETENTION, Audited, Beside, beside
from proof.commands import Commands
from proof.count import Ledger, Verdict, judge
from proof.crew import Crew
from proof.journal import Journal
from proof.parking import Parker
from proof.plan import ONE_BROKER, THREE_BROKERS, Disturbance, Done, Kind, plan, wanted
from proof.reading import Reading
from proof.servers import Servers
from proof.troubles import Scene, Stuck, Troubles
from proof.world import TOPIC, World

_PARTITIONS = 4
_STUCK_SECONDS = 150.0
_SAY_SECONDS = 5.0
_AT_LEAST_ONCE_ROWS = 500
# Batches in flight at the same time: one that is sent, and one that is taken.
_IN_FLIGHT = 2
# How often in a row nothing must be parked before we believe it.
_QUIET = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    The parameters of a run, for `seconds` or until `kills` and all that belongs to them is done.

    Each kind of disturbance comes once, however long that takes: on a busy machine, longer.
    """

    directory: Path
    """The folder for settings and logs."""

    seconds: float
    kills: int | None = None
    seed: int = 1
    capture: Literal["table", "wal", "switching"] = "table"
    mode: Literal["exactly_once", "at_least_once"] = "exactly_once"
    brokers: int = 1
    relays: int = 3
    writers: int = 3
    pace: float = 0.01
    """The average pause of a writer between two transactions, in seconds."""

    longest_stall: float = 6.0
    """The longest time that a server or a network is away, in seconds."""

    without: tuple[Kind, ...] = ()
    """Kinds that are left out."""

    settings: dict[str, object] = field(default_factory=dict)
    """Settings of the relays."""

    audit: bool = False
    """Run an auditor beside, and kill it as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The disturbances of a run, and its result."""

    verdict: Verdict
    done: Done
    takeovers: int
    seconds: float
    audited: Audited | None = None
    explained: str
    """The entries of the journal around the faults."""

    def fields(self) -> dict[str, object]:
        """Return it as one flat mapping."""
        told = {**asdict(self.verdict), **asdict(self.done)}
        del told["faults"], told["by_kind"]
        if self.audited is not None:
            told["audited"] = self.audited._asdict()
        return {**told, "takeovers": self.takeovers, "seconds": round(self.seconds, 1)}


class Broken(DovecoteError):
    """The run ended early; the message has what was done before."""


Show = Callable[[str], None]


def run(options: Options, show: Show) -> Outcome:
    """
    Run the proof.

    Raises:
        DovecoteError: a relay gave up, or nothing moved any more.
    """
    show("starting Postgres and Kafka")
    journal = Journal(show)
    with World(options.brokers) as world:
        dsn = _prepare(world, options.capture)
        settings = dict(options.settings)
        if options.mode == "at_least_once":
            settings |= {"mode": options.mode, "batch_rows": _AT_LEAST_ONCE_ROWS}
        if options.audit:
            settings |= {"retention": RETENTION}
        commands = Commands(options.directory, journal)
        parker = Parker(world, dsn, seed=options.seed, commands=commands, journal=journal)
        crew = Crew(
            options.directory,
            dsn,
            world.bootstrap,
            size=options.relays,
            settings=settings,
            journal=journal,
        )
        scene = Scene(
            dsn=dsn,
            world=world,
            crew=crew,
            writers=writers.Writers(dsn, TOPIC, seed=options.seed, pace=options.pace),
            parker=parker,
            commands=commands,
            journal=journal,
            capture=options.capture,
            done=Done(),
            writes_to_wal=options.capture == "wal",
        )
        try:
            if not options.audit:
                return _Proof(options, scene).run()
            with beside(options.directory, dsn, world.bootstrap, options.seed) as auditor:
                return _Proof(options, scene, auditor).run()
        except DovecoteError as error:
            window = "\n".join(f"  {line}" for line in journal.last())
            msg = f"{error}\nWhat was done before, with seed {options.seed}:\n{window}"
            raise Broken(msg) from error
        finally:
            crew.end()


def _prepare(world: World, capture: str) -> str:
    with psycopg.connect(world.dsn, autocommit=True) as conn:
        conn.execute("CREATE DATABASE proof")
    dsn = make_conninfo(world.dsn, dbname="proof")
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
    writers.prepare(dsn)
    if capture == "wal":
        use_wal(dsn, schema.DEFAULT_SCHEMA)
    world.make_topic(TOPIC, _PARTITIONS)
    return dsn


class _Proof:
    def __init__(self, options: Options, scene: Scene, auditor: Beside | None = None) -> None:
        self._options, self._scene, self._auditor = options, scene, auditor
        self._troubles, self._servers = Troubles(scene), Servers(scene)
        self._do = {**self._troubles.kinds(), **self._servers.kinds()}
        self._shares = THREE_BROKERS if options.brokers > 1 else ONE_BROKER
        switches = options.capture == "switching"
        self._without = {*options.without, *(() if switches else (Kind.SWITCH,))}
        self._rest = threading.Event()  # never set, only waited for

    def run(self) -> Outcome:
        began = time.monotonic()
        scene = self._scene
        with ThreadPoolExecutor(1, thread_name_prefix="parker") as pool:
            if Kind.PARK in self._without:
                scene.parker.stop()
            parking = pool.submit(scene.parker.work)
            try:
                with writers.at_work(scene.writers, self._options.writers):
                    self._disturb(began)
            finally:
                scene.parker.stop()
                scene.writers.go_on()
            parking.result(60)
        scene.journal.note("writers have stopped; waiting for the last events", shown=True)
        verdict = self._settle()
        audited = self._auditor.verdict(scene.parker.dropped) if self._auditor else None
        return Outcome(
            audited=audited,
            verdict=verdict,
            done=scene.done,
            takeovers=scene.crew.takeovers,
            seconds=time.monotonic() - began,
            explained=scene.journal.explain(verdict.faults),
        )

    def _disturb(self, began: float) -> None:
        options, scene = self._options, self._scene
        said = began
        for disturbance in plan(
            options.seed,
            options.longest_stall,
            shares=self._shares,
            without=self._without,
        ):
            self._troubles.active()
            self._troubles.rest(disturbance.wait)
            scene.journal.note(str(disturbance.kind))
            self._do[disturbance.kind](disturbance)
            if self._auditor is not None:
                self._auditor.disturb()
            scene.done.by_kind[disturbance.kind] += 1
            scene.done.restarted = scene.crew.restarted
            now = time.monotonic()
            is_over = now - began > options.seconds and self._has_met_all()
            if now - said > _SAY_SECONDS or disturbance.kind is not Kind.KILL:
                scene.journal.note(self._progress(disturbance), shown=True)
                said = now
            if is_over or self._is_enough():
                return

    def _has_met_all(self) -> bool:
        met = self._scene.done.by_kind
        return all(met[kind] for kind in self._shares if kind not in self._without)

    def _is_enough(self) -> bool:
        kills, done = self._options.kills, self._scene.done
        if kills is None or done.kills < kills:
            return False
        if self._options.brokers == 1:
            return True
        due = wanted(kills, self._shares, self._without)
        return all(done.by_kind[kind] >= count for kind, count in due.items())

    def _progress(self, last: Disturbance) -> str:
        done = self._scene.done
        told = {name: n for name, n in asdict(done).items() if n and name != "by_kind"}
        return f"{last.kind} done; " + ", ".join(f"{name} {n}" for name, n in told.items())

    def _settle(self) -> Verdict:
        """Wait until nothing more arrives, end the relays, read the rest, and judge."""
        scene = self._scene
        self._troubles.whole()
        self._release()
        committed = writers.committed(scene.dsn)
        total = sum(len(each) for ranges in committed.values() for each in ranges)
        with Reading(scene.world.bootstrap, [TOPIC, *scene.parker.topics]) as reading:
            moved, before = time.monotonic(), 0
            # Surplus records are no reason to wait; missing ones are, as long as there is hope.
            while self._lacks(reading, committed, total) and (
                time.monotonic() - moved < _STUCK_SECONDS
            ):
                reading.go_on(1.0)
                scene.crew.look_after()
                if len(reading.seen) > before:
                    moved, before = time.monotonic(), len(reading.seen)
            if self._lacks(reading, committed, total):
                self._tell_what_is_left()
            scene.crew.stop()
            reading.finish()
            batches = _IN_FLIGHT * (scene.crew.takeovers + scene.done.restarts)
            once = self._options.mode == "exactly_once"
            ledger = Ledger(
                committed=committed,
                gone=writers.gone(scene.dsn),
                given_up=scene.parker.given_up,
                said_gone=self._servers.said_gone,
                may_repeat=0 if once else batches * _AT_LEAST_ONCE_ROWS,
            )
            return judge(ledger, reading.seen)

    def _tell_what_is_left(self) -> None:
        """Say where missing events may be: they are parked, or the relays do not go on."""
        scene = self._scene
        for told in scene.parker.still_parked():
            scene.journal.note(told, shown=True)
        for each in scene.crew.members:
            scene.journal.note(each.child.tail(), shown=True)

    def _lacks(self, reading: Reading, committed: dict[str, list[range]], total: int) -> bool:
        """Return whether an event that must be there was not read yet."""
        if len(reading.seen) < total - len(self._scene.parker.given_up):
            return True
        numbers = {(record.key, record.number) for record in reading.seen}
        return any(
            (key, number) not in numbers and (key, number) not in self._scene.parker.given_up
            for key, ranges in committed.items()
            for each in ranges
            for number in each
        )

    def _release(self) -> None:
        """Publish everything that is parked."""
        deadline = time.monotonic() + 2 * _STUCK_SECONDS
        empty = 0
        while empty < _QUIET:
            self._troubles.active()
            empty = 0 if self._scene.parker.release(self._scene.crew) else empty + 1
            self._troubles.rest(2.0)
            if time.monotonic() > deadline:
                msg = "events stay parked although nothing is in their way any more"
                raise Stuck(msg)
