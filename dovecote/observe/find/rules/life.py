"""The life of an event as it is shown: steps, where it is, and what it waits for."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

ITS_FILE = "--config FILE"
"""Stands in commands for the file that was given, which the rules do not know."""


class Step(NamedTuple):
    """One thing that happened."""

    at: datetime | None
    """None: nothing says when."""
    part: str
    what: str
    detail: str = ""


class Standing(NamedTuple):
    """Where an event stands with one part."""

    part: str
    state: str
    """One word, such as `parked`, `handled` or `dead`; docs/find.md has all of them."""
    where: str
    waits_for: str | None = None


class LookedAt(NamedTuple):
    """A part or topic that was looked at; None: from its beginning."""

    part: str
    since: datetime | None
    until: datetime | None


class PartFailure(NamedTuple):
    """A source that did not answer, or only in part."""

    part: str
    error: str


@dataclass(frozen=True, slots=True)
class One:
    """The life of one event."""

    id: str
    source: str
    topic: str | None
    key: bytes | None
    at: datetime | None
    """When it was appended, or otherwise when its record was written."""
    steps: Sequence[Step]
    standings: Sequence[Standing]

    @property
    def where(self) -> str:
        """One sentence."""
        return _sentence([each.where for each in self.standings])

    @property
    def waits_for(self) -> str | None:
        """One sentence; None: it waits for nothing."""
        waits = [each.waits_for for each in self.standings if each.waits_for]
        return _sentence(waits) if waits else None

    def state(self, part: str) -> str | None:
        """Return the state of the event with a part; None: nothing is said of that part."""
        return next((each.state for each in self.standings if each.part == part), None)

    def as_json(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "id": self.id,
            "source": self.source,
            "topic": self.topic,
            "key": _text(self.key),
            "at": _time(self.at),
            "where": self.where,
            "waits_for": self.waits_for,
            "parts": [each._asdict() for each in self.standings],
            "steps": [{**each._asdict(), "at": _time(each.at)} for each in self.steps],
        }


@dataclass(frozen=True, slots=True)
class Life:
    """The answer to a query: the events that were found, and what was looked at."""

    query: Mapping[str, Any]
    events: Sequence[One]
    """The oldest first."""
    looked: Sequence[LookedAt]
    failures: Sequence[PartFailure] = field(default_factory=tuple)
    left_out: int = 0
    """Older events of the key, beyond the limit."""

    @property
    def found(self) -> bool:
        return bool(self.events)

    @property
    def where(self) -> str:
        """One sentence of where the event is now, or what it means that it is nowhere."""
        match self.events:
            case []:
                return nowhere(self)
            case [one]:
                return one.where
            case _:
                return f"{len(self.events)} events, each with its own state"

    @property
    def waits_for(self) -> str | None:
        return self.events[0].waits_for if len(self.events) == 1 else None

    def by_file(self, file: Path) -> Self:
        """Return it with commands that can be pasted, which read this file."""
        config = f"--config {shlex.quote(str(file))}"

        def told(each: Standing) -> Standing:
            waits = each.waits_for
            return each._replace(waits_for=waits and waits.replace(ITS_FILE, config))

        events = [replace(each, standings=[*map(told, each.standings)]) for each in self.events]
        return replace(self, events=events)

    def as_json(self) -> dict[str, Any]:
        """Return it in the form of the console's `/api/find`."""
        steps = sorted(
            (step for each in self.events for step in each.steps), key=lambda step: _order(step.at)
        )
        return {
            "query": dict(self.query),
            "found": self.found,
            "where": self.where,
            "waits_for": self.waits_for,
            "steps": [{**each._asdict(), "at": _time(each.at)} for each in steps],
            "events": [each.as_json() for each in self.events],
            "left_out": self.left_out,
            "looked": [
                {"part": each.part, "from": _time(each.since), "to": _time(each.until)}
                for each in self.looked
            ],
            "failures": [each._asdict() for each in self.failures],
        }


def nowhere(life: Life) -> str:
    """Return what it means that nothing was found."""
    if life.failures:
        return (
            "not found, but the answer is incomplete: "
            f"{_and(sorted({each.part for each in life.failures}))} did not answer"
        )
    return (
        "in none of the parts that were looked at: it was never committed there, its rows and "
        "records are deleted by now, or it is from another time than was looked at"
    )


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Return steps in order of time; those without a time are last."""
    return sorted(steps, key=lambda each: _order(each.at))


def _order(at: datetime | None) -> datetime:
    return datetime.max.replace(tzinfo=UTC) if at is None else at


def _sentence(parts: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(parts))


def _and(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _text(key: bytes | None) -> Any:  # noqa: ANN401  # JSON
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"hex": key.hex()}
