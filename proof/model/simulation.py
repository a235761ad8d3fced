"""Run relays, commands, writers and trouble, step by step, as a seed decides; then judge."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from proof.count import Seen, Verdict, judge
from proof.model.command import Accept, Command, Reshard
from proof.model.party import newest
from proof.model.postgres import Database, Gone, Row
from proof.model.relay import Relay
from proof.model.world import EVENTS, PROGRESS, Bug, Point, Progress, Steps, T, World
from relay.rules.places.progress import Cursor

_KEYS = ("a", "b", "c")
_WRITERS = 3
_STEPS = 400
_SETTLING_STEPS, _TIMES_OUT = 4_000, 400


_LONGEST_DELAY, _PATIENCE = 60, 12
_ROLLED_BACK = 0.25
_COPIED, _COMMANDED, _RESHARDS, _REJOINS = 0.15, 0.05, 0.2, 0.2


class Trouble(StrEnum):
    """An event that may happen at a step of a relay or a command."""

    CRASH = "ended here, and started anew"
    DELAY = "delayed here, while others go on"
    HELD_BACK = "what it has sent is held back here"
    LOST_ROLE = "lost the active role here, without knowing"
    SERVER_CRASH = "Postgres crashed here"
    FAILOVER = "another Postgres was promoted here"
    PUT_BACK = "Postgres was put back to a snapshot of its volume here"
    CUT_OFF = "the leader of the progress topic was cut off here"


LOSSES = frozenset({Trouble.FAILOVER, Trouble.PUT_BACK})
"""Troubles after which a server may lack what it had."""

_CHANCES = {
    Trouble.CRASH: 0.02,
    Trouble.DELAY: 0.05,
    Trouble.HELD_BACK: 0.03,
    Trouble.LOST_ROLE: 0.03,
    Trouble.SERVER_CRASH: 0.005,
    Trouble.FAILOVER: 0.012,
    Trouble.PUT_BACK: 0.02,
    Trouble.CUT_OFF: 0.06,
}
_MOST_KINDS = 5


@dataclass(slots=True)
class _Process:
    """A relay or a command at a step."""

    party: Relay | Command
    steps: Steps[None]
    next: Point
    wakes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a world."""

    verdict: Verdict
    false_refusals: int
    """How often a server that was never restored was taken for a restored one."""
    may_repeat: int
    """How many events may be published again where nothing fences."""
    accepted: int
    """How often an operator went on from a server that had lost something."""
    troubles: Counter[tuple[Point, Trouble]]
    """The troubles, with the steps at which they happened."""

    @property
    def is_well(self) -> bool:
        """Return whether the protocol kept its word."""
        found, most = self.verdict, self.may_repeat
        wrong = (found.lost, found.duplicated > most, found.out_of_order, self.false_refusals)
        return not any(wrong)


def simulate(seed: int, bug: Bug | None = None, kind: type[Relay] = Relay) -> Outcome:
    """Run a world to its end, and compare what is published with what was committed."""
    return _Run(seed, bug, kind).run()


class _Run:
    def __init__(self, seed: int, bug: Bug | None, kind: type[Relay]) -> None:
        self._kind, self._fences = kind, kind is Relay
        self._troubles: Counter[tuple[Point, Trouble]] = Counter()
        self._chance = random.Random(seed)  # noqa: S311  # to be repeated, no secret
        self._is_settling = False
        self._world = World(bug, self._happens)
        self._chances = _chances(self._chance, without=frozenset() if self._fences else LOSSES)
        self._relays = self._chance.randint(1, 3)
        self._started = 0
        self._now = 0
        self._processes = [self._start(kind) for _ in range(self._relays)]
        self._copies: list[Database] = []
        self._writers = [self._writer() for _ in range(_WRITERS)]
        self._others = self._other_outbox()

    def run(self) -> Outcome:
        for self._now in range(_STEPS):
            self._step()
        self._settle()
        for self._now in range(_STEPS, _STEPS + _SETTLING_STEPS):
            if self._now % 8 == 0 and not _is_behind(self._world):
                break
            if self._now % _TIMES_OUT == 0:
                self._world.broker.time_out()
            self._step()
        world = self._world
        return Outcome(
            _judged(world), world.false_refusals, world.may_repeat, world.accepted, self._troubles
        )

    def _settle(self) -> None:
        """End all trouble."""
        self._is_settling = True
        for writer in self._writers:
            for _ in writer:  # open transactions end, one after the other
                pass
        for _ in self._others:
            pass
        for process in self._processes:
            process.wakes = 0
        for wire in self._world.wires:
            wire.held_until = 0
        self._world.broker.rejoin(PROGRESS)
        self._end_old_primaries()

    def _step(self) -> None:
        """Do one of all the things that could happen."""
        now = self._now
        wires = [each for each in self._world.wires if each.queue and each.held_until <= now]
        roll = self._chance.random()
        if wires and roll < 0.35:  # noqa: PLR2004  # shares of the steps
            self._one_of(wires).deliver()
        elif roll < 0.68 or self._is_settling:  # noqa: PLR2004  # shares of the steps
            self._command()
            awake = [each for each in self._processes if each.wakes <= now]
            if awake:
                self._go_on(self._one_of(awake))
        elif roll < 0.97:  # noqa: PLR2004  # shares of the steps
            next(self._one_of(self._writers))
            if self._happens(_COPIED):
                self._copies.append(self._world.database.copy())
        else:
            next(self._others)
            if self._happens(_REJOINS):
                self._world.broker.rejoin(PROGRESS)

    def _command(self) -> None:
        """Act as an operator, who runs one command at a time."""
        if not (self._is_settling or self._happens(_COMMANDED)):
            return
        if len(self._processes) > self._relays + 1:
            return
        if self._world.is_refused:
            self._processes.append(self._start(Accept))
        elif self._fences and self._happens(_RESHARDS):
            self._processes.append(self._start(Reshard))

    def _go_on(self, process: _Process) -> None:
        trouble = None if self._is_settling else self._trouble()
        if trouble is not None and self._strikes(trouble, process):
            self._troubles[process.next, trouble] += 1
        if trouble in {Trouble.CRASH, Trouble.DELAY}:
            return
        following = next(process.steps, None)
        if following is None:
            self._processes.remove(process)
            return
        if following is process.next is Point.LOCK:
            # Another process has the role.
            process.wakes = self._now + self._chance.randrange(_PATIENCE)
        process.next = following

    def _trouble(self) -> Trouble | None:
        roll = self._chance.random()
        for trouble, share in self._chances.items():
            if roll < share:
                return trouble
            roll -= share
        return None

    def _strikes(self, trouble: Trouble, process: _Process) -> bool:
        """Make `trouble` happen; return whether it could."""
        world = self._world
        match trouble:
            case Trouble.DELAY:
                process.wakes = self._now + self._chance.randrange(_LONGEST_DELAY)
            case Trouble.CRASH:
                # The requests that it has sent arrive all the same.
                process.steps.close()
                process.party.end()
                self._processes.remove(process)
                if isinstance(process.party, Relay):
                    self._processes.append(self._start(self._kind))
            case Trouble.HELD_BACK:
                process.party.hold_back(self._now + self._chance.randrange(_LONGEST_DELAY))
            case Trouble.LOST_ROLE:
                process.party.end_role()
            case Trouble.SERVER_CRASH:
                world.database.crash()
            case Trouble.FAILOVER:
                self._fail_over()
            case Trouble.PUT_BACK:
                return self._put_back()
            case Trouble.CUT_OFF:
                return world.broker.cut_off(PROGRESS)
        return True

    def _fail_over(self) -> None:
        """Promote a standby, which may lack the last commits; the old primary goes on."""
        old = self._world.database
        new = self._chance.choice([old, old, *self._copies[-2:]]).copy()
        new.promoted(old)
        old.abandon()
        self._end_old_primaries()
        self._world.old_primaries.append(old)
        self._world.database = new
        self._copies.clear()

    def _end_old_primaries(self) -> None:
        for old in self._world.old_primaries:
            old.shut_down()
        self._world.old_primaries.clear()

    def _put_back(self) -> bool:
        """Restore a copy, if progress has a younger nonce; return whether there is one."""
        old, progress = self._world.database, newest(self._world.broker.committed(PROGRESS))
        known = {
            id_: {copy.claim.nonce, copy.claim.previous} for id_, copy in enumerate(self._copies)
        }
        found = [id_ for id_, nonces in known.items() if progress.nonce not in nonces]
        if progress.cursor == Cursor() or not found:
            return False
        chosen = self._chance.choice(found)
        del self._copies[chosen + 1 :]
        old.shut_down()
        self._world.database = self._copies[chosen].copy()
        self._world.database.put_back = old.put_back + 1
        return True

    def _start(self, kind: type[Relay] | type[Command]) -> _Process:
        self._started += 1
        party = kind(self._world, self._started)
        steps = party.steps()
        return _Process(party, steps, next(steps))

    def _one_of(self, things: Sequence[T]) -> T:
        """Choose like `random.choice`, which takes four times as long."""
        return things[int(self._chance.random() * len(things))]

    def _happens(self, share: float) -> bool:
        return not self._is_settling and self._chance.random() < share

    def _writer(self) -> Iterator[None]:
        """Write events under their keys' locks, until everything settles."""
        while not self._is_settling:
            yield
            database = self._world.database
            running = database.begin()
            try:
                keys = self._chance.sample(_KEYS, self._chance.choice([1, 1, 2]))
                for key in sorted(keys):
                    while database.is_locked(key, running) and not self._is_settling:
                        yield
                    if database.is_locked(key, running):
                        break  # the holder of the lock ends later: commit what there is
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
        """Act as another outbox's relay, with transactions of its own in the same partition."""
        broker, log = self._world.broker, PROGRESS
        epoch = broker.init("another")
        while not self._is_settling:
            broker.produce("another", epoch, log, "somebody's progress")
            yield
            broker.commit("another", epoch)
            yield


def _chances(chance: random.Random, *, without: frozenset[Trouble]) -> Mapping[Trouble, float]:
    """
    Return the troubles of a world, and the likelihood of each at a step.

    A world with few kinds of trouble has more of each, and explores them further.
    """
    possible = [each for each in Trouble if each not in without]
    kinds = chance.sample(possible, chance.randint(1, _MOST_KINDS))
    return {each: _CHANCES[each] * _MOST_KINDS / len(kinds) for each in kinds}


def _judged(world: World) -> Verdict:
    """
    Compare with the database's final contents, and with what its earlier states had published.

    An event counts as given up only if operators were told of it.
    """
    database, published = world.database, _published(world)
    keys = {row.id: row.key for row in published}
    kept = {row.id: row.key for row in [*database.committed(), *database.past]}
    aside = _given_up(world) | (database.parked - keys.keys())
    numbers: Counter[str] = Counter()
    number_of: dict[int, int] = {}
    for id_, key in sorted((kept | keys).items()):
        if id_ not in aside:
            number_of[id_] = numbers[key]
            numbers[key] += 1
    return judge(numbers, [Seen(row.key, number_of.get(row.id, -1)) for row in published])


def _is_behind(world: World) -> bool:
    """Return whether anything is still to be done."""
    if any(wire.queue for wire in world.wires):
        return True
    done = {*(row.id for row in _published(world)), *_given_up(world), *world.database.parked}
    return any(row.id not in done for row in world.database.committed())


def _published(world: World) -> list[Row]:
    return [each for each in world.broker.committed(EVENTS) if isinstance(each, Row)]


def _given_up(world: World) -> set[int]:
    found = [each for each in world.broker.committed(PROGRESS) if isinstance(each, Progress)]
    return {id_ for each in found for id_ in each.given_up}
