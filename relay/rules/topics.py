"""
Decide which topics events may go to, by the relay's rules and by the broker's answers.

A missing topic holds up nobody: its events are parked at once. For a while the relay asks for it
again and again, and requeues its events when it is there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from relay.rules.parking import OWN_TOPIC, Reason
from relay.rules.row import Row, topic_of

Ask: TypeAlias = Callable[[Collection[str]], Mapping[str, Reason | None]]
"""
Asks the broker about all the topics at once; returns why no event can go there, None if one can.

A topic for which the broker has no answer is left out.
"""


def no_answer(_: Collection[str]) -> Mapping[str, Reason | None]:
    """Return no answers."""
    return {}


# Kafka's own topics and ours: an event there would forge what other programs believe.
_OURS = (
    "__",
    "dovecote.progress.",
    "dovecote.markers.",
    "dovecote.push.",
    "dovecote.skips",
)

# The shortest and the longest pause between two questions about a topic that is waited for, in
# seconds; the longer it has been missing, the longer the pause. Other topics get the longest.
_SOON, _ASK_AGAIN = 0.5, 30.0
# The pause before the next question, as a part of the time that a topic has been missing.
_PART = 0.1
# The most topics to remember, because a service may put an id into their names.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """The topics to which a relay publishes."""

    progress_topic: str
    allowed: Sequence[str] = ()
    """Names and patterns (`orders.*`); none: all."""

    def refusal(self, topic: str) -> Reason | None:
        """Return why events for `topic` are not published, or None if they are."""
        if topic == self.progress_topic or topic.startswith(_OURS):
            return OWN_TOPIC
        if self.allowed and not any(fnmatchcase(topic, one) for one in self.allowed):
            return Reason("TOPIC_NOT_ALLOWED", "the topic is not among the relay's `topics`")
        return None


@dataclass(slots=True)
class _Refused:
    """A topic to which nothing can be published."""

    reason: Reason
    since: float
    ask_at: float
    is_waited_for: bool


@dataclass(slots=True)
class Topics:
    """The topics that the rules close, and those that the broker refuses."""

    rules: Rules
    patience: float
    """Seconds that the relay waits for a refused topic, which may be about to be created."""
    _open: set[str] = field(default_factory=set)
    _refused: dict[str, _Refused] = field(default_factory=dict)
    _appeared: set[str] = field(default_factory=set)

    def begin(self, waited: Mapping[str, tuple[Reason, float]], now: float) -> None:
        """Forget the open topics; events of `waited` have been parked for the given seconds."""
        self._open.clear()
        for topic, (reason, age) in waited.items():
            if topic not in self._refused:
                self._close(topic, _Refused(reason, now - age, now, age < self.patience))

    def closed(self, topics: AbstractSet[str], now: float, ask: Ask) -> Mapping[str, Reason]:
        """Return which of `topics` are closed, and why; the broker is asked about new ones."""
        if topics <= self._open:
            return {}
        found = {topic: why for topic in topics - self._open if (why := self.rules.refusal(topic))}
        others = topics - self._open - found.keys()
        self._learn([topic for topic in others if self._is_due(topic, now)], now, ask)
        refused = self._refused
        return found | {topic: refused[topic].reason for topic in others & refused.keys()}

    def look(self, topic: str, now: float, ask: Ask) -> Reason | None:
        """Ask the broker about `topic`; return why nothing can be published there, or None."""
        self._learn([topic], now, ask)
        refused = self._refused.get(topic)
        return None if refused is None else refused.reason

    def appeared(self, now: float, ask: Ask) -> Collection[str]:
        """Return the topics that were waited for and exist now, until they are `welcomed`."""
        due = [name for name, it in self._refused.items() if it.is_waited_for and now >= it.ask_at]
        self._learn(due, now, ask)
        return self._appeared

    def welcomed(self, topics: Collection[str]) -> None:
        """Note that the parked events of these topics, which have appeared, are on their way."""
        self._appeared.difference_update(topics)

    def refused(self, topic: str, reason: Reason, now: float) -> None:
        """Note that the broker refuses an event because of its topic."""
        self._open.discard(topic)
        known = self._refused.get(topic)
        since = now if known is None else known.since
        waits = now - since < self.patience and (known is None or known.is_waited_for)
        # Its answer to a question may have been different; asking again at once would not help.
        self._close(topic, _Refused(reason, since, now + (_SOON if waits else _ASK_AGAIN), waits))

    def given_up(self, topic: str, reason: Reason, now: float) -> None:
        """Note that a requeued event was refused because of its topic: a person must act now."""
        self._open.discard(topic)
        self._close(topic, _Refused(reason, now, now + _ASK_AGAIN, is_waited_for=False))

    def taken(self, rows: Sequence[Row]) -> None:
        """Note that the broker took `rows`, so their topics are open again."""
        if self._refused:
            for topic in self._refused.keys() & set(map(topic_of, rows)):
                self._opened(topic)

    def _is_due(self, topic: str, now: float) -> bool:
        refused = self._refused.get(topic)
        return refused is None or now >= refused.ask_at

    def _learn(self, topics: Collection[str], now: float, ask: Ask) -> None:
        if not topics:
            return
        for topic, reason in ask(topics).items():
            if reason is None:
                self._opened(topic)
                continue
            known = self._refused.get(topic)
            since = now if known is None else known.since
            waits = now - since < self.patience and (known is None or known.is_waited_for)
            pause = min(max(_SOON, (now - since) * _PART), _ASK_AGAIN) if waits else _ASK_AGAIN
            self._close(topic, _Refused(reason, since, now + pause, waits))

    def _opened(self, topic: str) -> None:
        if len(self._open) >= _MOST:
            self._open.clear()
        self._open.add(topic)
        refused = self._refused.pop(topic, None)
        if refused is not None and refused.is_waited_for:
            self._appeared.add(topic)

    def _close(self, topic: str, refused: _Refused) -> None:
        self._refused[topic] = refused
        if len(self._refused) > _MOST:
            del self._refused[next(iter(self._refused))]
