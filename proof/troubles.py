"""Disturb relays, networks and operators' commands, one method for each kind."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psycopg

from outbox import schema
from outbox.errors import DovecoteError
from outbox.schema.capture import use_table, use_wal
from proof.commands import Commands
from proof.crew import Crew, Member
from proof.journal import Journal
from proof.parking import Parker
from proof.plan import Disturbance, Done, Kind
from proof.world import World
from proof.writers import Writers

_LOOK_SECONDS = 0.01
_HALF = 0.5
_STUCK_SECONDS = 150.0
_SLOW_RATES = (30_000.0, 100_000.0, 400_000.0)


class Stuck(DovecoteError):
    """Nothing moved although nothing was in the way any more."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """Everything that takes part."""

    dsn: str
    world: World
    crew: Crew
    writers: Writers
    parker: Parker
    commands: Commands
    journal: Journal
    capture: str
    done: Done
    writes_to_wal: bool


class Waiting:
    """Waits while a supervisor looks after the relays."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._rest = threading.Event()  # never set, only waited for

    def rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.scene.crew.look_after()
            self._rest.wait(min(left, 0.1))

    def until(self, predicate: Callable[[], bool], what: str) -> None:
        """
        Wait until `predicate` is true.

        Raises:
            Stuck: it is not true in time.
        """
        deadline = time.monotonic() + _STUCK_SECONDS
        while not predicate():
            if time.monotonic() > deadline:
                logs = "\n".join(each.child.tail() for each in self.scene.crew.members)
                msg = f"not within {_STUCK_SECONDS:g} s: {what}\n{logs}"
                raise Stuck(msg)
            self.rest(_LOOK_SECONDS)

    def active(self, chance: random.Random | None = None) -> Member:
        """Wait for an active relay, and return one."""
        found: list[Member] = []

        def look() -> bool:
            found[:] = self.scene.crew.actives()
            return bool(found)

        self.until(look, "a relay is active")
        return chance.choice(found) if chance else found[0]

    def whole(self) -> None:
        """Wait until each partition has all its copies."""
        self.until(self.scene.world.is_whole, "all brokers have all copies")

    def kill(self, chance: random.Random) -> None:
        """Kill an active relay, if there is one."""
        if actives := self.scene.crew.actives():
            self.scene.crew.replace(chance.choice(actives))
            self.scene.done.kills += 1


class Troubles(Waiting):
    """The kinds that do not touch servers."""

    def kinds(self) -> Mapping[Kind, Callable[[Disturbance], None]]:
        return {
            Kind.KILL: self._kill,
            Kind.PAUSE: self._pause,
            Kind.STALL: self._stall,
            Kind.CUT: self._cut,
            Kind.UNLOCK: self._unlock,
            Kind.SLOW: self._slow,
            Kind.PARK: self._park,
            Kind.WOKEN: self._woken,
            Kind.SWITCH: self._switch,
        }

    def _kill(self, disturbance: Disturbance) -> None:
        self.kill(disturbance.chance())

    def _pause(self, disturbance: Disturbance) -> None:
        victim = self.active(disturbance.chance())
        victim.pause()
        # With one shard, another relay must take over; with several, one may be active already.
        self.active()
        self.rest(disturbance.wait)
        victim.resume()
        self.scene.done.pauses += 1

    def _stall(self, disturbance: Disturbance) -> None:
        victim = self.active(disturbance.chance())
        victim.proxy.stall()
        self.rest(disturbance.length)
        victim.proxy.resume()
        self.scene.done.stalls += 1

    def _cut(self, disturbance: Disturbance) -> None:
        self.active(disturbance.chance()).proxy.cut()
        self.scene.done.stalls += 1

    def _unlock(self, _: Disturbance) -> None:
        self.scene.crew.unlock()
        self.scene.done.stalls += 1

    def _slow(self, disturbance: Disturbance) -> None:
        chance, cluster = disturbance.chance(), self.scene.world.cluster
        rate = chance.choice(_SLOW_RATES)
        if cluster is not None and chance.random() < _HALF:
            cluster.slow(chance.choice(cluster.brokers).number, rate)
            self.rest(disturbance.length)
            cluster.heal()
        else:
            victim = self.active(chance)
            victim.proxy.rate = rate
            self.rest(disturbance.length)
            victim.proxy.rate = None
        self.scene.done.stalls += 1

    def _park(self, disturbance: Disturbance) -> None:
        self.scene.parker.disturb(self.scene.crew, disturbance.chance(), self.scene.done)

    def _switch(self, _: Disturbance) -> None:
        self.scene.writes_to_wal = not self.scene.writes_to_wal
        self._use_capture()
        self.scene.done.switches += 1

    def _use_capture(self) -> None:
        switch = use_wal if self.scene.writes_to_wal else use_table
        switch(self.scene.dsn, schema.DEFAULT_SCHEMA)

    def _woken(self, disturbance: Disturbance) -> None:
        chance, switching = disturbance.chance(), self.scene.capture == "switching"
        kinds = [self._init_woken if switching else self._reshard_woken]
        if self.scene.parker.writes:
            kinds.append(self._parking_woken)
        # A command may end before it is stopped; then another one is tried.
        for _ in range(4):
            if chance.choice(kinds)(chance):
                self.scene.done.woken += 1
                return

    def _parking_woken(self, chance: random.Random) -> bool:
        scene, crew = self.scene, self.scene.crew
        self.until(self._is_parked, "something is parked")
        arguments = [*scene.parker.command(chance), "--wait", "--config", str(crew.config)]
        if crew.shards > 1:
            return False  # it concerns one shard at a time, named in the environment

        def rival() -> None:
            if chance.random() < _HALF:
                self.kill(chance)
            scene.commands.run(scene.dsn, "relay", "parked", "requeue", "--all", *arguments[-2:])
            self.rest(chance.random())

        return scene.commands.wake(scene.world.postgres_dsn(scene.dsn), arguments, rival, chance)

    def _is_parked(self) -> bool:
        with psycopg.connect(self.scene.dsn, connect_timeout=10) as conn:
            return conn.execute("SELECT FROM outbox.parked LIMIT 1").fetchone() is not None

    def _init_woken(self, chance: random.Random) -> bool:
        scene = self.scene
        before = scene.writes_to_wal
        name = "table" if before else "wal"

        def rival() -> None:
            # Back, or the same again, like an operator who sees the first command hang.
            scene.writes_to_wal = chance.random() < _HALF
            self._use_capture()
            self.rest(chance.random())

        server = scene.world.postgres_dsn(scene.dsn)
        woke = scene.commands.wake(server, ["init", "outbox", "--capture", name], rival, chance)
        with psycopg.connect(scene.dsn, connect_timeout=10) as conn:
            row = conn.execute("SELECT outbox.writes_to_wal()").fetchone()
        scene.writes_to_wal = bool(row and row[0])
        return woke

    def _reshard_woken(self, chance: random.Random) -> bool:
        """Reshard while the relays are away; the rival is a relay, or another operator."""
        scene, crew = self.scene, self.scene.crew
        before, after = crew.shards, 3 - crew.shards
        crew.stop()
        arguments = ["relay", "reshard", "--config", str(crew.configured(after))]

        def rival() -> None:
            if chance.random() < _HALF:
                scene.commands.run(scene.dsn, *arguments)
                crew.shards = after
            crew.shards = self._shards(before)
            crew.fill()
            self.active()
            self.rest(chance.random() * 2)

        woke = scene.commands.wake(scene.world.postgres_dsn(scene.dsn), arguments, rival, chance)
        if self._shards(before) != crew.shards or not crew.members:
            # It was not cut off, or it was faster; the running relays have the other number of
            # shards.
            crew.kill()
            crew.shards = self._shards(before)
            crew.fill()
        self.active()
        return woke

    def _shards(self, otherwise: int) -> int:
        with psycopg.connect(self.scene.dsn, connect_timeout=10) as conn:
            row = conn.execute("SELECT max(shards) FROM outbox.sharding").fetchone()
        return int(row[0]) if row and row[0] else otherwise
