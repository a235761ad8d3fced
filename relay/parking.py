"""
Park the events that the broker can never take, and carry out operators' commands on them.

There are two stores without a common transaction, so the order is the guarantee. An event is
parked in Postgres *before* the progress that passes it; until then it is read again, and parked
anew. A requeued event is published in one Kafka transaction with progress that names the command,
and is deleted *after* that. Events that are published according to progress are only deleted,
never published again.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple, Protocol

from relay.errors import Unpublishable
from relay.kafka.publisher import Publisher
from relay.metrics import Metrics
from relay.postgres.parked import Command, Dropped, Due, Known, Welcome
from relay.publishing import paced
from relay.reporting import ParkedReports
from relay.rules.held import MOST, HeldKeys, Lane
from relay.rules.isolation import Isolation
from relay.rules.pace import Pace
from relay.rules.parking import BEHIND, TOO_LARGE, EventMark, EventToPark, Reason, Scope, sort
from relay.rules.places.progress import Place, Progress
from relay.rules.row import TOPIC, Identity, Key, Row, identity, is_left, key_of, size_of, topic_of
from relay.rules.topics import Ask, Rules, Topics
from relay.settings import RelaySettings

_log = logging.getLogger("dovecote.relay")

# Seconds between looks for commands while events are parked; and while none are, in case a command
# was given as the last of them went.
_LOOK = 0.5
_SELDOM = 10.0
# How long events of other keys may wait for the parked ones, in seconds.
_TURN = 0.5
# For each second of asking about missing topics, so many belong to the events of others.
_SHARE = 9.0
# The most topics named in one line.
_MOST_NAMES = 5


class Store(Protocol):
    """The store of parked events and commands; each call is durable when it returns."""

    def tidy(self, last_command: int, requeued: int, passed: int) -> None: ...
    def load(self, passed: int, place: Place, *, above: int) -> Known: ...
    def park(self, events: Sequence[EventToPark], first: int) -> str: ...
    def lanes(self) -> Iterator[Lane]: ...
    def held_topics(self) -> list[str] | None: ...
    def held_among(self, lanes: Sequence[Lane]) -> list[int]: ...
    def requeue(self, topics: Sequence[str], after: int) -> Welcome | None: ...
    def commands(self, *, of_aside: bool) -> list[Command]: ...
    def due(self, command: Command, *, after: int, most: int, most_bytes: int) -> list[Due]: ...
    def published(self, events: Sequence[Due]) -> None: ...
    def drop(self, command: Command) -> Dropped: ...
    def refused_again(self, command: Command, number: int, reason: Reason) -> None: ...
    def finish(self, command: Command) -> None: ...
    def is_held(self, key: Key) -> bool: ...
    def key_of(self, ticket: int) -> Key | None: ...


class Admitted(NamedTuple):
    """The part of a batch to publish; the rest is parked."""

    rows: Sequence[Row]
    topics: AbstractSet[str]
    """The topics of the whole batch."""
    number: int = 0
    """The highest number given to a parked event."""
    lsn: str | None = None
    """A server that lacks this place of the log has lost the parked events."""


class Parking:
    """
    The parked events of one outbox, as its active relay sees them.

    However many events are parked, memory stays bounded: see `HeldKeys`. No number of parked
    events stops the others; see `Crowding` for what the operator hears of them.
    """

    def __init__(
        self,
        settings: RelaySettings,
        metrics: Metrics,
        bounds: tuple[Isolation, Pace],
        ask: Ask,
        *,
        clock: Callable[[], float] = time.monotonic,
        most_held: int = MOST,
        noted: Callable[[int, str], None] | None = None,
    ) -> None:
        """
        Know nothing yet.

        `noted` gets how many events are parked, and why one was, if not to wait for another.
        """
        self._settings, self._metrics, self._clock = settings, metrics, clock
        self._noted = noted
        self._ask, self._reports = ask, ParkedReports(clock)
        rules = Rules(settings.progress_topic, settings.topics)
        self._topics = Topics(rules, settings.park_after.total_seconds())
        self._isolation, self._pace = bounds
        self._chunk = 0
        self._store: Store
        self._count = self._highest = 0
        self._held = HeldKeys(most_held)
        self._marks: dict[Identity, EventMark] = {}
        self._look_at = self._welcome_at = 0.0
        self._welcoming: list[str] = []
        self._welcomed_to = 0

    @property
    def count(self) -> int:
        """The number of parked events; of more than `COUNTED` when the role came, a part."""
        return self._count

    def begin(self, store: Store, progress: Progress) -> None:
        """
        Load what is parked; call it once the role is ours and progress was read after the fence.
        """
        self._store = store
        requeued = self._requeued(progress)
        store.tidy(progress.last_command, requeued, progress.parked)
        known = store.load(progress.parked, progress.cursor, above=requeued)
        self._held.begin(store.lanes(), store.held_topics)
        self._count = known.events
        # A command goes on after the number up to which it has published.
        self._highest = max(progress.parked, requeued, known.highest)
        fresh = {id_: mark for id_, mark in self._marks.items() if mark.number is None}
        self._marks = {**fresh, **known.marks}
        self._metrics.parked.set(self._count)
        self._topics.begin(known.waited, self._clock())
        self._look_at, self._welcoming = 0.0, []

    def admit(self, rows: Sequence[Row], *, has_large: bool = False) -> Admitted:
        """
        Park what must be parked, and return the rest of the batch.
        """
        for row in filter(is_left, rows if has_large else ()):
            known = self._marks.get(identity(row))
            self._marks[identity(row)] = EventMark(TOO_LARGE, known.number if known else None)
        topics = set(map(topic_of, rows))
        closed = self._topics.closed(topics, self._clock(), self._ask)
        policy = self._settings.on_poison
        held = self._held.among(rows, self._store.held_among)
        publish, park = sort(rows, closed=closed, held=held, marks=self._marks, policy=policy)
        if not park:
            return Admitted(publish, topics)
        lsn = self._park(park)
        return Admitted(publish, topics, self._highest, lsn)

    def _park(self, events: Sequence[EventToPark]) -> str:
        lsn = self._store.park(events, self._highest + 1)
        self._highest += len(events)
        # Events that are parked anew are counted already.
        self._count += sum(each.replaces is None for each in events)
        self._look_at = min(self._look_at, self._clock() + _LOOK)
        self._reports.parked(events)
        for each in events:
            self._marks.pop(identity(each.row), None)
            if each.replaces is None:
                self._metrics.parked_event(each.reason.code)
        self._held.add({key_of(each.row) for each in events if each.holds})
        self._metrics.parked.set(self._count)
        own = [each for each in events if each.reason.code != BEHIND.code]
        if own and self._noted is not None:
            self._noted(self._count, f"{own[-1].reason.text}, for topic {own[-1].row[TOPIC]!r}")
        return lsn

    def taken(self, rows: Sequence[Row]) -> None:
        """Note that the broker took `rows`."""
        self._topics.taken(rows)

    def learn(self, error: Unpublishable) -> None:
        """
        Note that the broker refused an event.

        Everything begins again from progress, and the event is parked when it comes again, unless
        it is still unknown whether this event is to blame.
        """
        if error.scope is Scope.TOPIC:
            self._topics.refused(error.row[TOPIC], error.reason, self._clock())
        elif error.scope is Scope.EVENT:
            for row in (error.row, *error.alike):
                self._marks[identity(row)] = EventMark(error.reason)
            self._isolation.found()
        else:
            self._isolation.searches(error.before, error.request_bytes)

    def obey(self, publisher: Publisher, progress: Progress) -> Progress | None:
        """
        Carry out operators' commands between two batches; return the progress after them.

        None: a requeued event was refused, and the publisher can no longer be used.
        """
        self._reports.catch_up()
        self._welcome()
        if self._clock() < self._look_at:
            return progress
        began = self._clock()
        # Events that will be read again are parked anew, and then requeued or dropped. But without
        # a fence, late progress from a relay that is gone may pass them.
        commands = self._store.commands(of_aside=self._settings.mode != "exactly_once")
        for command in commands:
            if command.action == "drop":
                self._drop(command, began + _TURN)
            else:
                try:
                    progress = self._requeue(command, publisher, progress, began + _TURN)
                except _RefusedAgain:
                    return None
            if self._clock() > began + _TURN:
                # Commands remain, although the last of the parked events may be published.
                self._look_at = 0.0
                return progress
        self._look_at = self._clock() + (_LOOK if self._count or commands else _SELDOM)
        return progress

    def _welcome(self) -> None:
        """Requeue the parked events of topics that have appeared."""
        began = self._clock()
        if began < self._welcome_at:
            return
        appeared = self._topics.appeared(began, self._ask)
        if not self._welcoming:
            self._welcoming, self._welcomed_to = sorted(appeared), 0
        asked = None
        if names := self._welcoming:
            asked = self._store.requeue(names, self._welcomed_to)
        # Events of others wait meanwhile, so most of the time is theirs.
        self._welcome_at = self._clock() + _SHARE * (self._clock() - began)
        if asked is None:
            return
        if asked.commands:
            _log.info(
                "can publish to %s now: what is parked for that is requeued",
                ", ".join(names[:_MOST_NAMES])
                + (" and others" if len(names) > _MOST_NAMES else ""),
            )
            self._look_at = 0.0
        if asked.more_after is None:
            self._topics.welcomed(names)
            self._welcoming = []
        else:
            self._welcomed_to = asked.more_after

    def _requeued(self, progress: Progress) -> int:
        """
        Return the number up to which the newest command has published its events.

        That number is unknown `at_least_once`. There, events that are set aside are requeued too,
        and others that are parked later have lower numbers. So published events are repeated.
        """
        return progress.requeued if self._settings.mode == "exactly_once" else 0

    def _drop(self, command: Command, until: float) -> None:
        """Delete the events of `command`; what is left after `until` waits for its next turn."""
        key = self._key(command)
        count, is_done = 0, False
        while not is_done and (not count or self._clock() <= until):
            dropped, is_done = self._store.drop(command)
            count += dropped
        _log.warning("dropped %d parked events, as command %d says", count, command.number)
        self._gone(count, key if is_done else None)

    def _requeue(
        self, command: Command, publisher: Publisher, progress: Progress, until: float
    ) -> Progress:
        """Publish the events of `command`; what is left after `until` waits for its next turn."""
        key = self._key(command)
        count = 0
        after = self._requeued(progress) if progress.last_command == command.number else 0
        while due := self._store.due(
            command,
            after=after,
            most=self._chunk or self._isolation.most,
            most_bytes=self._pace.most,
        ):
            first = due[0].row
            if reason := TOO_LARGE if is_left(first) else self._refusal(first[TOPIC]):
                # Events that hold no key do not depend on each other, and each of them gets the
                # reason.
                is_whole = command.topic is not None and command.key is None
                is_whole = is_whole and reason is not TOO_LARGE
                self._refused_again(
                    command, due if is_whole else due[:1], Unpublishable(due[0].row, reason)
                )
                if command.topic is None or command.key is not None or self._clock() > until:
                    break
                continue
            due = list(takewhile(lambda each: not is_left(each.row), due))
            after = due[-1].number
            progress = replace(progress, last_command=command.number, requeued=after)
            rows = self._publish(command, due, publisher, progress)
            self._store.published(due)
            count, self._chunk = count + len(due), 0
            self._gone(len(due), None)
            self._topics.taken(rows)
            self._metrics.published(rows)
            if self._clock() > until:
                break
        else:
            self._store.finish(command)
        if count:
            _log.info("requeued %d events, as command %d says", count, command.number)
        self._gone(0, key)
        return progress

    def _publish(
        self, command: Command, due: Sequence[Due], publisher: Publisher, progress: Progress
    ) -> Sequence[Row]:
        rows = [each.row for each in due]
        try:
            size = sum(map(size_of, rows))
            with paced(self._pace, lambda: size):
                publisher.publish(rows, progress)
        except Unpublishable as error:
            if error.scope is Scope.REQUEST:
                self._isolation.searches(error.before, error.request_bytes)
                raise _RefusedAgain from error
            if error.before:
                self._chunk = error.before
                raise _RefusedAgain from error
            if error.scope is Scope.TOPIC:
                self._topics.given_up(error.row[TOPIC], error.reason, self._clock())
            self._refused_again(command, due[:1], error)
            raise _RefusedAgain from error
        return rows

    def _refusal(self, topic: str) -> Reason | None:
        """
        Return why nothing can be published to `topic`, so that no attempt is needed, or None.
        """
        return self._topics.rules.refusal(topic) or self._topics.look(
            topic, self._clock(), self._ask
        )

    def _refused_again(
        self, command: Command, events: Sequence[Due], error: Unpublishable
    ) -> None:
        for event in events:
            self._store.refused_again(command, event.number, error.reason)
        self._isolation.found()
        more = f", and {len(events) - 1} more" if len(events) > 1 else ""
        _log.warning("%s; it stays parked%s", error, more)

    def _key(self, command: Command) -> Key | None:
        """Return the key that `command` may free."""
        if command.topic is not None:
            return command.topic, command.key
        return None if command.ticket is None else self._store.key_of(command.ticket)

    def _gone(self, events: int, key: Key | None) -> None:
        self._count -= events
        self._metrics.parked.set(self._count)
        if key is not None and not self._store.is_held(key):
            self._held.discard(key)


class _RefusedAgain(Exception):
    """The broker refused a requeued event; its producer can no longer be used."""
