"""Make the outputs of a window that fires."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outbox import envelope
from outbox.envelope import Pair, Record
from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.formats import formats
from spark_jobs.operators.aggregation.formats.json_text import dumps
from spark_jobs.operators.aggregation.results import Directions, Produced, produced
from spark_jobs.operators.aggregation.scripts.scripts import Answer, ScriptError, Scripts
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.step import Failed, Input, Made, Output, Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A window that fires, and why."""

    key: bytes
    reason: str
    start: int
    end: int
    age: int
    """How long the window has existed, in milliseconds of the wall clock."""
    revision: int
    events: Sequence[Record]
    """None if a script has folded them."""
    count: int
    """The number of events."""
    folded: Any
    """The accumulator, if a script folds."""
    last: tuple[str, int, int]
    """The topic, the partition and the offset of the last event."""
    is_last: bool
    """The window is purged afterwards."""


class Maker:
    """
    Makes records of windows.

    Raises:
        BadSettings: a schema is not valid.
    """

    def __init__(
        self,
        settings: AggregationSettings,
        scripts: Scripts,
        decode: Callable[[bytes | None, str | None], Any],
    ) -> None:
        step = settings.step
        self._scripts, self._decode = scripts, decode
        self._encode, self._content_type = formats.writing(settings)
        self._has_script = settings.aggregate is not None
        self._folds, self._concludes = settings.folds, scripts.has("aggregate")
        self._topics = step.topics()
        self._branches = {name: each.topic for name, each in step.branches.items()}

    def make(self, firing: Firing, cache: Any) -> tuple[list[Output], Any, bool]:  # noqa: ANN401  # JSON
        """Return the outputs, the cache, and whether the events were set aside."""
        if not self._has_script:
            return self._passed(firing), cache, False
        try:
            answer = self._asked(firing, cache)
            found = produced(answer, firing.events)
            if found is None:
                said = self.skipped(firing, "declined") if firing.is_last else []
                return said, answer.cache, False
            made = [self._made(each, firing, number) for number, each in enumerate(found)]
        except DovecoteError as error:
            if self._folds:
                return [_failed_fold(firing, str(error))], cache, True
            return [_failed(each, firing.key, str(error)) for each in firing.events], cache, True
        return [*made], answer.cache, False

    def skipped(self, firing: Firing, reason: str) -> list[Output]:
        """Return the notes about events of which nothing is made."""
        if self._folds:
            return [Skipped(firing.key, *firing.last, reason, firing.count)]
        return [
            Skipped(firing.key, each.topic, each.partition, each.offset, reason)
            for each in firing.events
        ]

    def _asked(self, firing: Firing, cache: Any) -> Answer:  # noqa: ANN401  # JSON
        if self._folds:
            if not self._concludes:
                return Answer(None, {"OUT": [firing.folded]}, cache)
            answer = self._scripts.conclude(
                firing.folded, firing.count, key=firing.key, age=firing.age, cache=cache
            )
            if answer.status == "passthrough":
                msg = "aggregate: a window whose script folds has no events to pass through"
                raise ScriptError(msg)
            return answer
        events = [self._decode(each.value, formats.schema_name(each)) for each in firing.events]
        return self._scripts.aggregate(
            events, firing.events, key=firing.key, age=firing.age, cache=cache
        )

    def _passed(self, firing: Firing) -> list[Output]:
        """Let the events go on unchanged: the most common case, and the simplest."""
        topic, key, count = self._topics[0], firing.key, len(firing.events)
        why = (firing.reason, firing.start, firing.end, count, firing.revision)
        # Calls tuple's own constructor; the named tuple's takes three times as long.
        make = tuple.__new__
        return [
            make(
                Made,
                (topic, *each[4:], each.timestamp, *why, number, each[:3], key, None, True),
            )
            for number, each in enumerate(firing.events)
        ]

    def _made(self, one: Produced, firing: Firing, number: int) -> Made:
        told = one.headers
        origin = firing.last
        if one.record is None:
            schema = formats.schema_name(told)
            key: bytes | None = firing.key
            value: bytes | None = self._encode(one.event, schema)
            own: list[Pair] = [(envelope.CONTENT_TYPE, self._content_type.encode())]
            time = max(firing.end, 0)
        else:
            last = one.record
            key, value, own, time = last.key, last.value, [*last.headers], last.timestamp
            origin = last[:3]
        if told.headers:
            names = {name for name, _ in told.headers}
            own = [*(pair for pair in own if pair[0] not in names), *told.headers]
        return Made(
            topic=self._topic(told),
            key=key if told.key is None else told.key,
            value=value,
            headers=own,
            time=time,
            reason=firing.reason,
            start=firing.start,
            end=firing.end,
            events=firing.count,
            revision=firing.revision,
            number=number,
            origin=origin,
            window=firing.key,
            shown=one.event,
            is_passed=one.record is not None,
        )

    def _topic(self, told: Directions) -> str:
        if told.topic is not None:
            if told.topic not in self._topics:
                msg = (
                    f'TargetTopic "{told.topic}" is no topic of this step: '
                    f"{', '.join(self._topics)} are (see targetTopics)"
                )
                raise ScriptError(msg)
            return told.topic
        if told.branch is None:
            return self._topics[0]
        if told.branch not in self._branches:
            known = ", ".join(self._branches) or "none"
            msg = f'BranchName "{told.branch}" is no branch of this step: {known}'
            raise ScriptError(msg)
        return self._branches[told.branch]


def _failed_fold(firing: Firing, reason: str) -> Failed:
    """Return the one dead letter of a window that keeps no events: what they were folded into."""
    pairs: list[Pair] = [(envelope.CONTENT_TYPE, b"application/json")]
    value = dumps(firing.folded)
    record = Record(*firing.last, max(firing.end, 0), firing.key, value, pairs)
    said = f"{reason} (this is what `fold` has made of the window's {firing.count} events)"
    return _failed(record, firing.key, said)


def _failed(record: Record, key: bytes, reason: str) -> Failed:
    place = record.topic, record.partition, record.offset
    return Failed(
        Input(key, record.timestamp, record, *place, raw=record.value, row=record), reason
    )
