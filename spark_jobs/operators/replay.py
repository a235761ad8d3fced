"""The stateful operators over a recorded trace."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dedup.replay.replay import OPERATORS as POLICIES
from dedup.replay.replay import Kind, Line
from dedup.replay.trace import Traced
from outbox.timestamps import milliseconds
from spark_jobs.operators.aggregation.settings import AggregationSettings, load_step
from spark_jobs.operators.lines import line
from spark_jobs.operators.reading import (
    OperatorSettings,
    believable,
    max_ahead,
    max_lag,
    reader,
)
from spark_jobs.operators.step import NEVER, Ahead, Failed
from spark_jobs.operators.table import TABLE, operator


class TracedOperator:
    """An operator that takes one record at a time; timers that are due come before it."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._operator = operator(settings)
        self._read = reader(settings)
        self._state = self._operator.start()
        self._now = 0
        lag = max_lag(settings)
        self._is_json = not isinstance(settings, AggregationSettings) or (
            settings.step.format.input.type == "json"
        )
        self._max_lag = NEVER if lag is None else lag
        self._max_ahead = max_ahead(settings)

    def record(self, record: Traced, now: int) -> Iterator[Line]:
        """
        Take a record.

        A record that is old by now has been waiting to be read, so the source has lagged since
        then.
        """
        written = milliseconds(record.timestamp)
        behind_from = now if written is None else written + self._max_lag
        if behind_from < now and behind_from > self._now:
            yield from self._step([], behind_from)
        read = self._read(record.record(is_json=self._is_json), record)
        if isinstance(read, Failed):
            yield from self._step([], now, behind=behind_from < now)
            yield line(read, now, self._settings)
            return
        ahead: list[Ahead] = []
        yield from self._step(
            believable([read], now, self._max_ahead, ahead), now, behind=behind_from < now
        )
        for each in ahead:
            yield line(each, now, self._settings)

    def advance(self, now: int) -> Iterator[Line]:
        """Do what is due; nothing was read, so the source does not lag."""
        yield from self._step([], now)

    def end(self, now: int) -> Iterator[Line]:
        """End the trace: an aggregation closes what is open, and other operators leave it open."""
        finish = getattr(self._operator, "finish", None)
        if finish is None:
            return
        step = finish(self._state, max(self._now, now))
        self._state = step.state
        for output in step.outputs:
            yield line(output, max(self._now, now), self._settings)

    def _step(self, records: Sequence[Any], now: int, *, behind: bool = False) -> Iterator[Line]:
        self._now = max(self._now, now)
        step = self._operator.step(self._state, records, now, behind=behind)
        self._state = step.state
        for output in step.outputs:
            yield line(output, now, self._settings)


OPERATORS: Mapping[str, Kind[Any]] = MappingProxyType(
    {
        **POLICIES,
        **{name: Kind(entry.settings, TracedOperator) for name, entry in TABLE.items()},
        "aggregation": Kind(AggregationSettings, TracedOperator, load_step),
    }
)
"""All operators, by name."""
