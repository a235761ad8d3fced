"""
The things that outlive a relay that parks: stream, Kafka, and parked events, as values.

Each durable step goes through `Stores.step`, before or after which the relay may end.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import NamedTuple, Never
from uuid import UUID

from relay.errors import Unpublishable
from relay.kafka.publisher import More, Ready, at_once, no_more
from relay.postgres.parked import ASIDE, Command, Dropped, Due, Known
from relay.rules.held import Lane, lane_of
from relay.rules.parking import EventMark, EventToPark, Reason, Scope
from relay.rules.places.progress import Cursor, Origin, Place, Progress, at
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import KEY, VALUE, Key, Row, identity, key_of

NAME, TOPIC = "shop", "orders"
HERE = Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1))
_LARGE = Reason("MSG_SIZE_TOO_LARGE", "too large")
_KEYS = (b"a", b"b", None)


class Bug(StrEnum):
    """A mistake that the model must find."""

    PROGRESS_FIRST = "lets progress pass an event before it is parked"
    DELETES_FIRST = "deletes a requeued event before it is published"
    COMMAND_AGAIN = "does not say in progress what of which command is published"
    NOT_TIDIED = "publishes again what the newest command had published"
    PARKS_TWICE = "parks an event again that was parked with a batch that came to nothing"
    FORGETS_MARKS = "publishes an event that was parked with a batch that came to nothing"
    FORGETS_HOLDS = "takes over without the keys that are held"
    PASSES_UNREAD = "lets progress pass the numbers of events that are still to be read again"
    REQUEUES_UNREAD = "requeues or drops an event that is still to be read again"
    DROPS_UNSEEN = "drops what was parked after somebody had looked"
    KNOWS_IDS = "knows an event by its id, whatever its place in the stream"
    NAMES_NUMBERS = "takes what has the number of an event by then for the event"


class Crash(Exception):
    """The process ends here."""


class Asked(NamedTuple):
    """A command as it is stored, and the events that its operator meant, which no store knows."""

    command: Command
    up_to: int
    meant: frozenset[int]


class Kept(NamedTuple):
    """A row of the table of parked events."""

    parked: EventToPark
    ticket: int
    attempt: int = 1
    refused_by: int | None = None

    @property
    def place(self) -> int:
        """Return its place in the stream."""
        return place_of(self.parked.row)


@dataclass(slots=True)
class Stores:
    """Both stores, and the events that the broker refuses."""

    chance: random.Random
    bug: Bug | None = None
    crash_at: int | None = None
    """The moment at which the first relay ends: twice the step, plus one for after it."""
    steps: int = 0
    crashes: bool = True
    poison: set[int] = field(default_factory=set)
    published: list[int] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    dropped_unseen: set[int] = field(default_factory=set)
    undone: set[int] = field(default_factory=set)
    """Events that a finished command was about, and which are still parked."""
    kept: dict[int, Kept] = field(default_factory=dict)
    commands: dict[int, Asked] = field(default_factory=dict)
    tickets: Iterator[int] = field(default_factory=lambda: count(1))
    progress: Progress = field(default_factory=lambda: at(NAME, HERE, Cursor()))
    _deferred: list[Callable[[], None]] = field(default_factory=list)

    def step(self, effect: Callable[[], None], *, bug: Bug | None = None) -> None:
        """Do something durable; the relay may end before it or after it."""
        self.steps += 1
        before, after = self._crashes(2 * self.steps), self._crashes(2 * self.steps + 1)
        if before:
            raise Crash
        if bug is not None and bug is self.bug:
            self._deferred.append(effect)
        else:
            effect()
        if after:
            raise Crash

    def catch_up(self) -> None:
        """Do what a relay with the wrong order does too late."""
        for effect in self._deferred:
            effect()
        self._deferred.clear()

    def forget(self) -> None:
        """Drop the deferred effects: the relay has ended."""
        self._deferred.clear()

    def matching(self, command: Command) -> list[int]:
        """Return the numbers of the events that `command` is about."""
        by_number = self.bug is Bug.NAMES_NUMBERS
        return sorted(
            n
            for n, kept in self.kept.items()
            if _matches(command, kept._replace(ticket=n) if by_number else kept)
        )

    def ask(self, command: Command) -> None:
        """Store an operator's command about what is parked now."""
        meant = frozenset(self.kept[n].place for n in self.matching(command))
        up_to = max(each.ticket for each in self.kept.values())
        self.commands[command.number] = Asked(command, up_to, meant)

    def done(self, number: int) -> None:
        """Delete a command that has been carried out."""
        asked = self.commands.pop(number, None)
        self.undone |= {
            kept.place
            for kept in self.kept.values()
            if asked is not None and kept.place in asked.meant and (kept.refused_by or 0) < number
        }

    def _crashes(self, moment: int) -> bool:
        if not self.crashes:
            return False
        if self.crash_at is not None:
            return moment == self.crash_at
        return self.chance.random() < 0.04  # noqa: PLR2004  # a share of the steps


def _matches(command: Command, kept: Kept) -> bool:
    if (kept.refused_by or 0) >= command.number:
        return False
    if command.ticket is not None:
        return kept.ticket == command.ticket
    if command.key is None:
        return not kept.parked.holds
    return kept.parked.holds and kept.parked.row[KEY] == command.key


def event(place: int, bug: Bug | None = None) -> Row:
    """
    Return the event at a place of the stream; its neighbour may have the same id.

    The model recognises an event by its value only.
    """
    key = _KEYS[place * 7 % 11 % len(_KEYS)]
    known_by = 0 if bug is Bug.KNOWS_IDS else place
    start = (known_by, str(UUID(int=place // 2)), 0, TOPIC, key, b"%d" % place)
    return (*start, "T", "/model", None, None, None, None)


def place_of(row: Row) -> int:
    """Return the place in the stream of a row from `event`."""
    return int(row[VALUE] or b"")


@dataclass(slots=True)
class Kafka:
    """A publisher whose transactions happen or do not."""

    world: Stores
    one_by_one: bool

    def open(self) -> None:
        """Do nothing: there is nobody to fence."""

    def close(self) -> None:
        """Do nothing: nothing is in flight."""

    def mark(self, key: bytes, value: str) -> None:
        """Do nothing: there is only one broker."""

    def publish(
        self,
        rows: Sequence[Row],
        progress: Progress,
        more: More = no_more,
        ready: Ready = at_once,
    ) -> None:
        if (later := more(0)) is not None:
            rows, progress = [*rows, *later[0]], later[1]
        if refused := [n for n, row in enumerate(rows) if place_of(row) in self.world.poison]:
            # Partitions answer in any order. Sometimes the client reports the refused event; an
            # event sent alone is always the one.
            told = self.one_by_one or len(rows) == 1 or self.world.chance.random() < 0.3  # noqa: PLR2004  # a share
            scope = Scope.EVENT if told else Scope.REQUEST
            before = self.world.chance.choice(refused)
            raise Unpublishable(rows[before], _LARGE, scope=scope, before=before)
        ready()
        world, last = self.world, self.world.progress
        if world.bug is Bug.COMMAND_AGAIN:
            progress = replace(progress, last_command=0, requeued=0)
        if world.bug is Bug.DELETES_FIRST and progress.last_command != last.last_command:
            gone = {place_of(row) for row in rows}
            world.step(lambda: _delete(world, lambda kept: kept.place in gone))

        def committed() -> None:
            world.published += [place_of(row) for row in rows]
            world.progress = progress

        world.step(committed)


def _delete(world: Stores, goes: Callable[[Kept], bool]) -> None:
    world.kept = {number: kept for number, kept in world.kept.items() if not goes(kept)}


@dataclass(slots=True)
class Postgres:
    """The tables of parked events and commands."""

    world: Stores

    def tidy(self, last_command: int, requeued: int, passed: int) -> None:
        world = self.world
        if world.bug is Bug.NOT_TIDIED:
            return

        def done() -> None:
            if last_command in world.commands:
                for number in world.matching(world.commands[last_command].command):
                    if number <= requeued:
                        del world.kept[number]

        world.step(done)

        def older() -> None:
            world.commands = {
                n: asked
                for n, asked in world.commands.items()
                if n >= last_command or max(world.matching(asked.command), default=0) > passed
            }

        world.step(older)

    def load(self, passed: int, place: Place, *, above: int) -> Known:
        # Every event of this world is read again from any place before it.
        del place, above
        world, bug = self.world, self.world.bug

        def set_aside() -> None:
            top = max(ASIDE, *world.kept)
            world.kept = {
                n - passed + top if passed < n < ASIDE else n: kept
                for n, kept in world.kept.items()
            }

        if bug is not Bug.PASSES_UNREAD and any(passed < number < ASIDE for number in world.kept):
            world.step(set_aside)
        kept = world.kept
        marks = {
            identity(each.parked.row): EventMark(each.parked.reason, number)
            for number, each in kept.items()
            if number > passed
        }
        return Known(
            len(kept),
            {} if bug is Bug.FORGETS_MARKS else marks,
            {},
        )

    def lanes(self) -> Iterator[Lane]:
        if self.world.bug is not Bug.FORGETS_HOLDS:
            yield from self._held()

    def held_topics(self) -> list[str]:
        return sorted({topic for topic, _ in self._held()})

    def held_among(self, lanes: Sequence[Lane]) -> list[int]:
        held = self._held()
        return [place for place, lane in enumerate(lanes) if lane in held]

    def _held(self) -> set[Lane]:
        kept = self.world.kept.items()
        return {lane_of(key_of(k.parked.row)) for n, k in kept if k.parked.holds and n < ASIDE}

    def park(self, events: Sequence[EventToPark], first: int) -> str:
        def one(each: EventToPark, number: int) -> Callable[[], None]:
            def parked() -> None:
                kept, moved = self.world.kept, None
                if each.replaces is not None and self.world.bug is not Bug.PARKS_TWICE:
                    moved = kept.pop(each.replaces, None)
                fresh = moved or Kept(each, next(self.world.tickets))
                kept[number] = fresh._replace(parked=each)

            return parked

        for number, each in enumerate(events, first):
            self.world.step(one(each, number), bug=Bug.PROGRESS_FIRST)
        return "0/0"

    def requeue(self, topics: Sequence[str], after: int) -> Never:
        raise AssertionError(topics, after)  # none is ever missing

    def commands(self, *, of_aside: bool) -> list[Command]:
        commands = [asked.command for asked in self.world.commands.values()]
        if of_aside or self.world.bug is Bug.REQUEUES_UNREAD:
            return commands
        return [each for each in commands if max(self.world.matching(each), default=0) < ASIDE]

    def due(self, command: Command, *, after: int, most: int, most_bytes: int) -> list[Due]:
        numbers = [number for number in self.world.matching(command) if number > after]
        assert most_bytes  # noqa: S101  # events of the model have no size
        return [Due(number, self.world.kept[number].parked.row) for number in numbers[:most]]

    def published(self, events: Sequence[Due]) -> None:
        gone = {each.number for each in events}
        kept = self.world.kept

        def deleted() -> None:
            self.world.kept = {n: each for n, each in kept.items() if n not in gone}

        self.world.step(deleted)

    def drop(self, command: Command) -> Dropped:
        """Drop one event at a time, and the command with the last one."""
        world, (_, up_to, meant) = self.world, self.world.commands[command.number]
        numbers = world.matching(command)
        seen = [number for number in numbers if world.kept[number].ticket <= up_to]

        some = (numbers if world.bug is Bug.DROPS_UNSEEN else seen)[:1]

        def dropped() -> None:
            for number in some:
                position = world.kept.pop(number).place
                world.dropped.add(position)
                if position not in meant:
                    world.dropped_unseen.add(position)
            if not some:
                world.done(command.number)

        world.step(dropped)
        return Dropped(len(some), is_done=not some)

    def refused_again(self, command: Command, number: int, reason: Reason) -> None:
        def counted() -> None:
            parked, ticket, attempt, _ = self.world.kept[number]
            parked = parked._replace(reason=reason)
            self.world.kept[number] = Kept(parked, ticket, attempt + 1, command.number)
            if command.key is not None or command.ticket is not None:
                del self.world.commands[command.number]

        self.world.step(counted)

    def finish(self, command: Command) -> None:
        self.world.step(lambda: self.world.done(command.number))

    def is_held(self, key: Key) -> bool:
        return any(
            k.parked.holds and key_of(k.parked.row) == key for k in self.world.kept.values()
        )

    def key_of(self, ticket: int) -> Key | None:
        kept = next((k for k in self.world.kept.values() if k.ticket == ticket), None)
        return key_of(kept.parked.row) if kept and kept.parked.holds else None
