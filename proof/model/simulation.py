"""Run relays, writers and trouble, one step at a time, as a seed will have it; then judge."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from proof.count import Seen, Verdict, judge
from proof.model.postgres import Database, Gone, Row
from proof.model.relay import EVENTS, Bug, Point, Relay, Steps, World

_KEYS = ("a", "b", "c")
_STEPS = 250
_SETTLING_STEPS = 4_000


class Trouble(StrEnum):
    """What may happen to a relay at a step."""

    CRASH = "ended here, and started anew"
    DELAY = "delayed here, while others go on"
    LOST_ROLE = "lost the active role here, without knowing"
    SERVER_CRASH = "Postgres crashed here"


_CHANCES = {
    Trouble.CRASH: 0.02,
    Trouble.DELAY: 0.03,
    Trouble.LOST_ROLE: 0.02,
    Trouble.SERVER_CRASH: 0.005,
}
_LONGEST_DELAY = 60
_ANSWER_GIVEN_UP = 0.06
_READS_ON = 0.4
_ROLLED_BACK = 0.25


@dataclass(slots=True)
class _Process:
    """A relay at a step."""

    relay: Relay
    steps: Steps[None]
    next: Point
    wakes: int = 0


@dataclass(slots=True)
class Simulation:
    """One run of a seed."""

    seed: int
    bug: Bug | None = None
    relays: int = 3
    writers: int = 3
    troubles: Counter[tuple[Point, Trouble]] = field(default_factory=Counter)
    """What happened, and at which step."""

    def run(self) -> Verdict:
        """Run it to its end, and compare what is published with what was committed."""
        return _Run(self).run()


class _Run:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = random.Random(simulation.seed)  # noqa: S311  # to be repeated, no secret
        self._is_settling = False
        self._world = World(self._gives_up, self._reads_on, simulation.bug)
        self._started = 0
        self._now = 0
        self._relays = [self._start() for _ in range(simulation.relays)]
        database = self._world.database
        self._writers = [self._writer(database) for _ in range(simulation.writers)]
        self._others = self._other_outbox()

    def run(self) -> Verdict:
        for self._now in range(_STEPS):
            self._step()
        self._is_settling = True
        for writer in self._writers:
            for _ in writer:  # what is open ends, one after the other
                pass
        for _ in self._others:
            pass
        for process in self._relays:
            process.wakes = 0
        for self._now in range(_STEPS, _STEPS + _SETTLING_STEPS):
            if not self._is_behind():
                break
            self._step()
        return self._judge()

    def _step(self) -> None:
        """Let one of all that could happen happen."""
        wires = [wire for wire in self._world.wires if wire.queue]
        roll = self._chance.random()
        if wires and roll < 0.35:  # noqa: PLR2004  # shares of the steps
            self._chance.choice(wires).deliver()
        elif roll < 0.75 or self._is_settling:  # noqa: PLR2004  # shares of the steps
            self._go_on(self._chance.choice(self._relays))
        elif roll < 0.97:  # noqa: PLR2004  # shares of the steps
            next(self._chance.choice(self._writers))
        else:
            next(self._others)

    def _go_on(self, process: _Process) -> None:
        if process.wakes > self._now:
            return
        trouble = None if self._is_settling else self._trouble()
        if trouble is not None:
            self._simulation.troubles[process.next, trouble] += 1
        match trouble:
            case Trouble.DELAY:
                process.wakes = self._now + self._chance.randrange(_LONGEST_DELAY)
                return
            case Trouble.CRASH:
                # What it has sent is on its way all the same.
                process.steps.close()
                process.relay.end_session()
                self._relays[self._relays.index(process)] = self._start()
                return
            case Trouble.LOST_ROLE:
                process.relay.end_session()
            case Trouble.SERVER_CRASH:
                self._world.database.crash()
        process.next = next(process.steps)

    def _trouble(self) -> Trouble | None:
        roll = self._chance.random()
        for trouble, share in _CHANCES.items():
            if roll < share:
                return trouble
            roll -= share
        return None

    def _start(self) -> _Process:
        self._started += 1
        relay = Relay(self._world, self._started)
        steps = relay.steps()
        return _Process(relay, steps, next(steps))

    def _reads_on(self) -> bool:
        return self._chance.random() < _READS_ON

    def _gives_up(self) -> bool:
        return not self._is_settling and self._chance.random() < _ANSWER_GIVEN_UP

    def _writer(self, database: Database) -> Iterator[None]:
        """Write events under their keys' locks, until all settles."""
        while not self._is_settling:
            yield
            running = database.begin()
            try:
                keys = self._chance.sample(_KEYS, self._chance.choice([1, 1, 2]))
                for key in sorted(keys):
                    while database.is_locked(key, running) and not self._is_settling:
                        yield
                    if database.is_locked(key, running):
                        break  # who holds it ends later: commit what there is
                    for _ in range(self._chance.choice([1, 1, 2, 5])):
                        database.append(running, key)
                        yield
                yield
                if self._chance.random() < _ROLLED_BACK:
                    database.roll_back(running)
                else:
                    database.commit(running)
            except Gone:
                continue

    def _other_outbox(self) -> Iterator[None]:
        """Be another outbox's relay, with transactions of its own."""
        broker, log = self._world.broker, self._world.log_of_others
        epoch = broker.init("another")
        while not self._is_settling:
            broker.produce("another", epoch, log, "somebody's progress")
            yield
            broker.commit("another", epoch)
            yield

    def _is_behind(self) -> bool:
        if any(wire.queue for wire in self._world.wires):
            return True
        published = set(self._published())
        return any(row not in published for row in self._world.database.committed())

    def _published(self) -> list[Row]:
        return [each for each in self._world.broker.committed(EVENTS) if isinstance(each, Row)]

    def _judge(self) -> Verdict:
        seen = [Seen(row.key, row.number) for row in self._published()]
        return judge(self._world.database.counters, seen)
