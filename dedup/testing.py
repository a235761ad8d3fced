"""
Try a handler without a broker: feed it records, let time pass, and see each outcome.

The consumer's own code decides and serves the keys; only the clock and the topics are simulated.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from dedup.inbox.inbox import Inbox
from dedup.inbox.remembered import Remembered
from dedup.inbox.tried import NOTHING, blocks_of, has_inbox_of, itself, once_in
from dedup.retries.aside import Held, Partition, Placed, Unfinished
from dedup.retries.copies import Copy
from dedup.retries.plan import Plan
from dedup.rules.annotations import typed
from dedup.rules.history import believed
from dedup.rules.identity import Identity
from dedup.rules.lanes.lanes import Lanes, NullKey, Stretch
from dedup.rules.policies import policies
from dedup.rules.policies.decode import as_json
from dedup.rules.policies.departures import Exits
from dedup.rules.policies.expressions import compile_filter
from dedup.rules.policies.policies import Skipped, Verdict, by_key
from dedup.rules.policies.results import Done, Early, Result, Skip
from dedup.rules.policies.signatures import is_awaited, require_takes
from dedup.rules.record import Decode, Record, read_with
from dedup.serving.handlers import of_records, of_whole_records
from dedup.serving.handover import HandoverReport
from dedup.serving.retries import Retries
from dedup.serving.serving import Serving, answering
from outbox import envelope
from outbox.errors import DovecoteError, InvalidEvent
from outbox.event import Event
from outbox.writing.declared import as_event

What: TypeAlias = Literal["handled", "skipped", "held", "waits", "retry", "dead_letter", "parked"]
"""
`held`: it failed and holds its key; `waits`: it is not due, or a service that it needs is away.
"""

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_AT_A_TIME = 500
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one record at one time."""

    what: What
    event: str
    """Its id."""
    record: Record
    reason: str = ""
    at: datetime = _BEGIN
    """The trial's time, in UTC."""
    attempt: int = 1
    """The number of this attempt, from 1, as a dead letter counts it."""
    to: str = ""
    """The topic to which a copy was sent, for `retry` and `dead_letter`."""


class StillWaiting(DovecoteError):
    """Records of a trial wait after all the time that it was given; the message names them."""


class Trial:
    """
    A consumer's handler, without a consumer.

    `plan` decides about failures, as the table `[retries]` does in a file. An async handler is run
    to its end for each record.

    With `tx` or `begin` the handler is `(event, tx)`, as with the table `[inbox]`, and an event
    whose transaction was committed is not handled again. `tx` is any object that the handler is
    given each time: a connection of `outbox.testing.recorded()`, or one of a real database. If it
    has `transaction()` or `begin_nested()`, each event is handled in such a block. `begin` opens
    a transaction as it does for `Inbox.once`: `pool.connection`, `Session.begin`. The inbox is in
    memory, unless `inbox` is one in the database of `begin`.

    Raises:
        BadSettings: the handler cannot be called so, or the arguments contradict each other.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        *,
        policy: Literal["exact", "latest", "first_match", "every"] = "exact",
        filter: str | None = None,  # noqa: A002  # the setting's name
        plan: Plan | None = None,
        decode: Decode = as_json,
        null_key: NullKey = "apart",
        takes_records: bool = False,
        tx: Any = NOTHING,  # noqa: ANN401  # what the handler takes
        begin: Callable[[], Any] | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        has_inbox = has_inbox_of(tx, begin, inbox)
        given = ["a record" if takes_records else "an event", *(["tx"] * has_inbox)]
        require_takes(handler, given, duty="handler")
        self.now = _BEGIN
        self._sent_to = ""
        self.outcomes: list[Outcome] = []
        """All outcomes so far, in order."""
        self.dead_letters: list[Record] = []
        """The records on the dead-letter topic."""
        self._plan = plan or Plan()
        self._retry_topics = {tier.topic for tier in self._plan.tiers}
        self._read = read_with(decode)
        self._passes = compile_filter(filter) if filter else None
        found = (
            None
            if takes_records
            else typed(handler, value="json" if decode is as_json else "decoded")
        )
        events = attrgetter("event") if found is None else found.event
        handle: Callable[..., Any]
        if has_inbox:
            given_of = itself if takes_records else events
            begin = begin or blocks_of(tx, awaits=is_awaited(handler))
            handle = once_in(handler, given_of, begin, inbox or Remembered("trial"))
        else:
            handle = of_whole_records(handler) if takes_records else of_records(handler, events)
        self._lanes: Lanes[Record] = Lanes(null_key)
        self._stretches: dict[str, Stretch[Record]] = {}
        self._ends: defaultdict[str, int] = defaultdict(int)
        self._arrived: list[Record] = []
        self._aside = _Noting(Retries(self._plan, self, now=self._milliseconds), self._note)
        self._serving = Serving(
            policy=self._noting(policies.OF_CONSUMERS[policy]),
            matches=lambda record: self._passes is None or self._passes(record.event),
            handle=self._handle(handle),
            aside=self._aside,
            plain=self._passes is None,
            decides_anew=policy == "first_match",
            unchosen="alone",  # every other record goes through the policy, and is noted
        )

    def feed(self, *records: Event | Record | object) -> list[Outcome]:
        """
        Deliver records as one poll batch, and return the outcomes.

        Objects of a class that `outbox.event` has declared are fed as `outbox.write` would write
        them.

        Raises:
            InvalidEvent: the class of an object is not declared, or `write` would refuse it.
        """
        before = len(self.outcomes)
        self._offer([self._record(each) for each in records])
        self._work()
        return self.outcomes[before:]

    def wait(self, time: timedelta) -> list[Outcome]:
        """Let time pass, and return the outcomes of records that became due."""
        before = len(self.outcomes)
        end = self.now + time
        while (due := self._lanes.release(self._seconds())) is not None:
            if due > end.timestamp():
                break
            # A datetime is coarser than a due time.
            self.now = max(self.now, datetime.fromtimestamp(due, UTC) + timedelta(microseconds=1))
            self._work()
        self.now = max(self.now, end)
        self._work()
        return self.outcomes[before:]

    def finish(self, within: timedelta = _DAY) -> list[Outcome]:
        """
        Let time pass until no record waits any more, and return the outcomes.

        The trial's time ends with the last outcome: that is how long a schedule takes.

        Raises:
            StillWaiting: some wait after `within`, such as those whose service stays away.
        """
        before, end = len(self.outcomes), self.now + within
        self._work()
        while (due := self._lanes.release(self._seconds())) is not None:
            if due > end.timestamp():
                raise StillWaiting(self._still_waiting(within))
            self.now = max(self.now, datetime.fromtimestamp(due, UTC) + timedelta(microseconds=1))
            self._work()
        return self.outcomes[before:]

    @property
    def waiting(self) -> list[str]:
        """The ids of the events that wait for another attempt, in the order in which they came."""
        last = {outcome.event: outcome.what for outcome in self.outcomes}
        return [event for event, what in last.items() if what in {"held", "waits", "retry"}]

    def _still_waiting(self, within: timedelta) -> str:
        last = {outcome.event: outcome.reason for outcome in self.outcomes}
        waiting = ", ".join(f"{event} ({last[event]})" for event in self.waiting[:10])
        advice = "give finish() more time"
        if self._plan.dead_letters is None:
            # Nothing can be given up then, so that more time alone would not help.
            advice += ", or give the plan a topic for dead_letters"
        return f"after {within} these still wait: {waiting}; {advice}"

    def ids(self, what: What) -> list[str]:
        """Return the ids of the events with this outcome, in order."""
        return [outcome.event for outcome in self.outcomes if outcome.what == what]

    def send(self, topic: str, copy: Copy) -> None:
        """Take a copy, as Kafka would: one on a retry topic comes back when it is due."""
        self._sent_to = topic
        record = self._placed(topic, copy.key, copy.value, copy.headers)
        if topic in self._retry_topics:
            self._arrived.append(record)
        else:
            self.dead_letters.append(record)

    def _record(self, given: Event | Record | object) -> Record:
        if isinstance(given, Record):
            # With a decoder of its own it would not be read as the others are.
            retry = given.topic in self._retry_topics
            headers = believed(given.headers, retry=retry)
            return self._placed(given.topic, given.key, given.value, headers)
        event = given if isinstance(given, Event) else as_event(given)
        key, value, headers = envelope.encode(event)
        return self._placed(event.topic, key, value, headers)

    def _placed(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[envelope.Pair],
    ) -> Record:
        offset = self._ends[topic]
        self._ends[topic] += 1
        return self._read(topic, 0, offset, self._milliseconds(), key, value, headers)

    def _offer(self, records: Iterable[Record]) -> None:
        topics: defaultdict[str, list[Record]] = defaultdict(list)
        for record in records:
            topics[record.topic].append(record)
        for topic, arrived in topics.items():
            if topic not in self._stretches:
                self._stretches[topic] = self._lanes.begin(topic, 0)
                self._lanes.open(self._stretches[topic])
            batch: defaultdict[bytes | None, list[Record]] = defaultdict(list)
            for key, group in by_key(arrived, lambda record: record.key):
                batch[key] += group
            self._lanes.offer(self._stretches[topic], batch)

    def _work(self) -> None:
        self._lanes.release(self._seconds())
        while True:
            arrived, self._arrived = self._arrived, []
            self._offer(arrived)
            lanes = self._lanes.take(_AT_A_TIME)
            if not lanes:
                return
            for lane in lanes:
                report = HandoverReport()
                try:
                    self._serving.serve(lane, report)
                except Exits as left:
                    raise left.reason from left
                self._lanes.give_back(report.served)
                for held, seconds in report.held:
                    self._lanes.hold(held, self._seconds() + seconds)

    def _handle(self, handler: Callable[[Record], Any]) -> Callable[[Record], Result]:
        handling = self._aside.retries.handling(handler)
        answer = answering(_awaiting(handling) if is_awaited(handling) else handling, self._aside)

        def handle(record: Record) -> Result:
            result = answer(record)
            match result:
                case Early(reason):
                    self._note("waits", record, reason)
                case Skip(reason):
                    self._note("skipped", record, f"handler: {reason}")
                case Done():
                    self._note("handled", record)
            return result

        return handle

    def _noting(self, policy: policies.Policy) -> policies.Policy:
        def noting(
            records: Iterable[Any],
            *,
            matches: Callable[[Any], bool],
            handle: Callable[[Any], Result],
            identity: Callable[[Any], Identity],
        ) -> Iterator[Verdict[Any]]:
            for verdict in policy(records, matches=matches, handle=handle, identity=identity):
                if isinstance(verdict, Skipped) and not verdict.reason.startswith("handler: "):
                    self._note("skipped", verdict.record, verdict.reason)
                yield verdict

        return noting

    def _note(
        self, what: What, record: Record, reason: str = "", attempt: int | None = None
    ) -> None:
        attempt = attempt or _attempt_of(self._aside.retries.as_it_is(record))
        sent, self._sent_to = self._sent_to, ""
        id_ = record.identity.id
        self.outcomes.append(Outcome(what, id_, record, reason, self.now, attempt, sent))

    def _seconds(self) -> float:
        return self.now.timestamp()

    def _milliseconds(self) -> int:
        return round(self.now.timestamp() * 1000)


class _Noting:
    """The consumer's `Aside`, with a note of each answer."""

    def __init__(self, retries: Retries, note: Callable[[What, Record, str, int], None]) -> None:
        self.retries = retries
        self._note = note

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """Do nothing: there is no group."""

    def early(self, record: Record) -> timedelta | None:
        return self.retries.early(record)

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        number = max(attempt, _attempt_of(self.retries.as_it_is(record)))
        answer = self.retries.place(record, result, attempt)
        reason = getattr(result, "error", "")
        what: What = "held" if isinstance(answer, Held) else answer.where
        self._note(what, record, reason or "", number)
        return answer

    def released(self, record: Record) -> None:
        self.retries.released(record)

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Do nothing: there is no group."""


def _awaiting(handler: Callable[[Record], Any]) -> Callable[[Record], Any]:
    return lambda record: asyncio.run(handler(record))


def _attempt_of(record: Record) -> int:
    try:
        return envelope.delivery(record).attempt
    except InvalidEvent:
        return 1  # a header of the record counts nothing: that is why it fails
