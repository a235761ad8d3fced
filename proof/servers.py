"""Disturb servers, one method for each kind."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import rmtree

from confluent_kafka import ElectionType, KafkaException

from dovecote.devstack.kafka.cluster import Cluster
from dovecote.devstack.postgres import volumes
from dovecote.devstack.postgres.pair import CLIENTS, Pair
from proof import writers
from proof.count import Seen
from proof.crew import GaveUp
from proof.plan import Disturbance, Kind
from proof.reading import Reading
from proof.troubles import Scene, Waiting
from proof.world import TOPIC

_PROGRESS = "progress"
# How often a supervisor starts a relay that refuses, before an operator comes.
_STARTS = 4
# Shares: of brokers that lead progress, of connections that break, and of other choices.
_AIMED, _RESETS, _HALF = 0.7, 0.3, 0.5

# The refusal of a command while relays have the rest of the log to publish.
_LEAVING = "on its way out of the write-ahead log"


class Servers(Waiting):
    """The kinds that touch servers."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.said_gone = 0
        """
        Events that Kafka has and the database lost, as reported by the command that accepted it.
        """

    def kinds(self) -> Mapping[Kind, Callable[[Disturbance], None]]:
        return {
            Kind.CRASH_POSTGRES: self._crash_postgres,
            Kind.CRASH_KAFKA: self._crash_kafka,
            Kind.PAUSE_KAFKA: self._pause_kafka,
            Kind.ISOLATE: self._isolate,
            Kind.CUT_OFF: self._isolate,
            Kind.LEADERS: self._leaders,
            Kind.ROLL: self._roll,
            Kind.PROMOTE: self._promote,
            Kind.SNAPSHOT: self._snapshot,
        }

    def _crash_postgres(self, disturbance: Disturbance) -> None:
        server = self.scene.world.postgres
        server.kill()
        self.rest(disturbance.wait)
        server.start()
        self.scene.done.restarts += 1

    def _crash_kafka(self, disturbance: Disturbance) -> None:
        chance, world = disturbance.chance(), self.scene.world
        self.whole()
        broker = world.brokers[self._chosen(chance) - 1]
        broker.kill()
        self.scene.journal.note(f"{broker.name} killed")
        if world.cluster is not None:
            self.rest(chance.random() * 2)
            self.kill(chance)
        self.rest(disturbance.wait)
        broker.start()
        self.scene.done.restarts += 1
        self.scene.done.broker_deaths += 1

    def _pause_kafka(self, disturbance: Disturbance) -> None:
        chance = disturbance.chance()
        self.whole()
        broker = self.scene.world.brokers[self._chosen(chance) - 1]
        broker.pause()
        self.rest(disturbance.length)
        broker.resume()
        self.scene.done.pauses += 1

    def _chosen(self, chance: random.Random) -> int:
        """Return the number of a broker, mostly of the one that leads progress."""
        number = self.scene.world.leader(_PROGRESS) if chance.random() < _AIMED else None
        return number or chance.randint(1, len(self.scene.world.brokers))

    def _isolate(self, disturbance: Disturbance) -> None:
        chance, cluster = disturbance.chance(), self._cluster()
        self.whole()
        number = self._chosen(chance)
        from_clients = disturbance.kind is Kind.CUT_OFF
        reset = chance.random() < _RESETS
        cluster.isolate(number, from_peers=True, from_clients=from_clients, reset=reset)
        self.scene.journal.note(
            f"broker {number} cut off from peers{' and clients' if from_clients else ''}"
            f"{', with resets' if reset else ''}"
        )
        # New leaders take over after two or three seconds; until then nobody is sure.
        self.rest(chance.uniform(0.0, 4.0))
        for _ in range(chance.randint(1, 3)):
            self.kill(chance)
            self.rest(chance.uniform(0.2, 1.5))
        cluster.heal()
        self.scene.journal.note("healed")
        self.scene.done.isolations += 1

    def _leaders(self, _: Disturbance) -> None:
        self.whole()
        try:
            self.scene.world.admin.elect_leaders(ElectionType.PREFERRED).result(30)
        except KafkaException as error:
            self.scene.journal.note(f"leaders were not moved: {error}")
            return
        self.scene.done.leaders_moved += 1

    def _roll(self, disturbance: Disturbance) -> None:
        chance = disturbance.chance()
        for broker in chance.sample(self.scene.world.brokers, len(self.scene.world.brokers)):
            self.whole()
            broker.restart()
            self.scene.journal.note(f"{broker.name} restarted")
        self.scene.done.rolls += 1

    def _promote(self, disturbance: Disturbance) -> None:
        chance, pair = disturbance.chance(), self._pair()
        if self.scene.capture != "table":
            # A standby without the slots must not be promoted, as the docs say.
            self.until(pair.has_slots, "the standby has the slots")
        split = chance.random() < _HALF
        pair.promote(split=split)
        self.scene.journal.note(f"promoted{', the old primary goes on' if split else ''}")
        self.scene.done.promotions += 1
        self.scene.done.splits += split
        self.rest(chance.uniform(0.0, 4.0))
        if chance.random() < _HALF:
            self.kill(chance)
        pair.renew()
        self.scene.journal.note("the other server is the new standby")

    def _snapshot(self, disturbance: Disturbance) -> None:
        """Restore the primary, writers or relays first; relays refuse until told to go on."""
        chance, pair, scene = disturbance.chance(), self._pair(), self.scene
        self.active()
        copy = pair.directory / "snapshot"
        volumes.take(pair.primary, copy)
        scene.journal.note("snapshot taken")
        counted = writers.counted(scene.dsn)
        with self._reading() as reading:
            self.rest(chance.uniform(0.3, 3.0))
            # Otherwise going on may be perfectly right.
            self.until(
                lambda: any(
                    record.number >= counted.get(record.key, 0) for record in _more(reading)
                ),
                "something is published that the snapshot lacks",
            )
        is_first = chance.choice(["writers", "relays"])
        self._go_back(pair, copy, writers_first=is_first == "writers")
        reading = self._reading()
        scene.journal.note(f"snapshot put back; {is_first} first")
        if is_first == "writers":
            self.rest(chance.uniform(0.2, 2.0))
            scene.crew.fill()
        try:
            with reading:
                self._refused(reading)
            self._accept()
        finally:
            scene.crew.may_refuse = False
            scene.writers.go_on()
            scene.parker.go_on()
        scene.done.snapshots += 1
        self.active()

    def _go_back(self, pair: Pair, copy: Path, *, writers_first: bool) -> None:
        scene, primary = self.scene, pair.primary
        scene.crew.may_refuse = True
        scene.crew.refusals.clear()
        pair.gates.shut(broken=[CLIENTS])
        if writers_first:
            scene.crew.kill()
        else:
            scene.writers.hold()
            scene.parker.hold()
        primary.kill()
        volumes.put_back(primary, copy)
        rmtree(copy)
        primary.start()
        # The standby belongs to the time that is gone.
        pair.renew()
        writers.begin_era(scene.world.postgres_dsn(scene.dsn))
        pair.gates.shut()

    def _refused(self, reading: Reading) -> None:
        """Let the supervisor start relays that refuse again and again: none may ever go on."""
        crew = self.scene.crew

        def is_over() -> bool:
            self.rest(0.5)
            return bool(_more(reading)) or len(crew.refusals) >= _STARTS

        self.until(is_over, f"{_STARTS} refusals, of which {len(crew.refusals)} came")
        # Requests on their way arrive, if anything was published at all.
        if _more(reading, within=2.0):
            logs = "\n".join(each.child.tail() for each in crew.members)
            msg = (
                "a relay went on at a server that was put back to an earlier state, after "
                f"{len(crew.refusals)} refusals\n{logs}"
            )
            raise GaveUp(msg)

    def _reading(self) -> Reading:
        """Return a reading of everything that is published from now on."""
        world = self.scene.world
        return Reading(world.bootstrap, [TOPIC], world.ends(TOPIC))

    def _accept(self) -> None:
        scene = self.scene
        crew = scene.crew
        crew.kill()
        options = ("--accept-restored", "--json", "--config", str(crew.config))
        reconcile = ("relay", "reconcile", *options)
        told = scene.commands.run(scene.dsn, *reconcile)
        if not told.startswith("{"):
            if _LEAVING in told:
                # The refusal names the command.
                scene.commands.run(
                    scene.dsn, *("init", "outbox", "--capture", "wal"), must_succeed=True
                )
                scene.writes_to_wal = True
            told = scene.commands.run(scene.dsn, *reconcile, must_succeed=True)
        for line in told.splitlines():
            said = json.loads(line)
            self.said_gone += int(said["missing_here"])
            scene.journal.note(f"accepted: {dict(said, ids=len(said['ids']))}")
        crew.may_refuse = False
        crew.fill()

    def _cluster(self) -> Cluster:
        assert self.scene.world.cluster is not None  # noqa: S101  # planned for three brokers
        return self.scene.world.cluster

    def _pair(self) -> Pair:
        assert self.scene.world.pair is not None  # noqa: S101  # planned for three brokers
        return self.scene.world.pair


def _more(reading: Reading, within: float = 0.5) -> list[Seen]:
    """Read on, and return all that was read."""
    reading.go_on(within)
    return reading.seen
