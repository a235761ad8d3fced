"""
Run one operator over a recorded trace, without Kafka or Spark.

The operator gets the trace's events: a record came, the wall clock moved, the trace ended. It
answers with lines, in the order in which they would be written. Time is part of the trace, so the
same trace always gives the same lines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from dedup.replay import trace
from dedup.replay.policy import TracedPolicy
from dedup.replay.trace import Advance, End, Traced
from dedup.settings.policy import ExactSettings, FirstMatchSettings, LatestSettings
from dovecote.process.settings.loading import load
from dovecote.process.settings.models import Settings
from outbox.errors import BadSettings

S = TypeVar("S", bound=Settings)

Line: TypeAlias = Mapping[str, object]
"""One line of the results, as JSON."""


class Operator(Protocol):
    """
    An operator that replay can run; `now` is the wall clock in milliseconds and never goes back.
    """

    def record(self, record: Traced, now: int) -> Iterable[Line]: ...
    def advance(self, now: int) -> Iterable[Line]: ...
    def end(self, now: int) -> Iterable[Line]: ...


@dataclass(frozen=True, slots=True)
class Kind(Generic[S]):
    """An operator's settings, and how to start it from them."""

    settings: type[S]
    start: Callable[[S], Operator]
    load: Callable[[Path], S] | None = None
    """Reads a file in its own format; left out: TOML with an `[operator]` table."""


OPERATORS: Mapping[str, Kind[Any]] = MappingProxyType(
    {
        "first_match": Kind(FirstMatchSettings, TracedPolicy),
        "exact": Kind(ExactSettings, TracedPolicy),
        "latest": Kind(LatestSettings, TracedPolicy),
    }
)
"""The operators that need only this package, by name."""


class _JobFile(BaseModel, Generic[S]):
    # A job's file also has tables for its sources and sinks; a replay ignores them.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    operator: S


def start(
    name: str,
    file: Path,
    *,
    environ: Mapping[str, str],
    operators: Mapping[str, Kind[Any]] = OPERATORS,
) -> Operator:
    """
    Return the operator `name`, as the `[operator]` table of `file` describes it.

    `DOVECOTE_REPLAY_OPERATOR__BATCH_SIZE` in `environ` overrides `batch_size` there.

    Raises:
        BadSettings: there is no such operator, or the table is wrong or for another one.
    """
    kind = operators.get(name)
    if kind is None:
        msg = f"unknown operator {name!r}; there are {', '.join(operators)}"
        raise BadSettings(msg)
    if kind.load is not None:
        return kind.start(kind.load(file))
    model = _JobFile[kind.settings]  # type: ignore[name-defined]  # made while running
    return kind.start(load(model, file, prefix="DOVECOTE_REPLAY", environ=environ).operator)


def replay(operator: Operator, lines: Iterable[bytes]) -> Iterator[Line]:
    """
    Yield the operator's lines for the trace in `lines`.

    Raises:
        BadTrace: a line is not a valid trace line; the lines before it stand.
    """
    now = 0
    for item in trace.read(lines):
        match item:
            case Traced(arrival=arrival):
                now = now if arrival is None else max(now, arrival)
                yield from operator.record(item, now)
            case Advance(advance_to=time):
                now = max(now, time)
                yield from operator.advance(now)
            case End():
                pass
    yield from operator.end(now)
