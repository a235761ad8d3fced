"""Turn the aggregation script's answer into the records that it makes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from outbox.envelope import Record
from spark_jobs.operators.aggregation.scripts.scripts import LONGEST_KEY, Answer, ScriptError

_KNOWN = {"TargetTopic", "TargetKey", "kafka", "BranchName"}

_MOST = 100_000
"""The most events in one answer."""


class Produced(NamedTuple):
    """One event that goes on."""

    event: Any
    """The event to be encoded; None: the record goes on unchanged."""
    record: Record | None
    headers: "Directions"


class Directions(NamedTuple):
    """The contents of HEADERS for one event."""

    topic: str | None = None
    key: bytes | None = None
    branch: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def produced(answer: Answer, records: Sequence[Record]) -> list[Produced] | None:
    """
    Return the events of `answer`; None: it declines, or has no events.

    Raises:
        ScriptError: OUT or HEADERS is not valid.
    """
    status, fields = answer.status, answer.fields
    if status == "decline":
        return None
    if status is not None and not isinstance(status, str):
        msg = "aggregate must return a status or a struct"
        raise ScriptError(msg)
    given = fields.get("HEADERS")
    if status == "passthrough":
        told = _aligned(given, len(records), is_passthrough=True)
        return [Produced(None, one, each) for one, each in zip(records, told, strict=True)]
    out = fields.get("OUT")
    if out is None or out == []:
        return None
    events = out if isinstance(out, list) else [out]
    if len(events) > _MOST:
        msg = f"OUT has {len(events)} events, more than {_MOST}"
        raise ScriptError(msg)
    told = _aligned(given, len(events), is_passthrough=False)
    return [Produced(event, None, each) for event, each in zip(events, told, strict=True)]


def _aligned(given: Any, count: int, *, is_passthrough: bool) -> list[Directions]:  # noqa: ANN401  # JSON
    if given is None:
        return [Directions()] * count
    if isinstance(given, dict):
        if count > 1 and not is_passthrough:
            msg = f"OUT has {count} events, so HEADERS must be a list of as many"
            raise ScriptError(msg)
        return [_directions(given)] * count
    if not isinstance(given, list) or len(given) != count:
        msg = f"HEADERS must be a list of {count}, in the order of the events"
        raise ScriptError(msg)
    return [_directions(each) for each in given]


def _directions(given: Any) -> Directions:  # noqa: ANN401  # JSON
    if given is None:
        return Directions()
    if not isinstance(given, dict):
        msg = "HEADERS must be an object, or a list of them"
        raise ScriptError(msg)
    if unknown := {*given} - _KNOWN:
        msg = f"HEADERS has {', '.join(sorted(_KNOWN))}, not {', '.join(sorted(unknown))}"
        raise ScriptError(msg)
    return Directions(
        _text(given, "TargetTopic"),
        _key(given),
        _text(given, "BranchName"),
        _flat(given.get("kafka") or {}),
    )


def _text(given: Mapping[str, Any], name: str) -> str | None:
    found = given.get(name)
    if found is not None and not isinstance(found, str):
        msg = f"HEADERS.{name} must be text"
        raise ScriptError(msg)
    return found


def _key(given: Mapping[str, Any]) -> bytes | None:
    found = _text(given, "TargetKey")
    if found is None or len(data := found.encode()) <= LONGEST_KEY:
        return None if found is None else data
    msg = f"HEADERS.TargetKey must be shorter than {LONGEST_KEY} bytes, not {len(data)}"
    raise ScriptError(msg)


def _flat(given: Any) -> tuple[tuple[str, bytes | None], ...]:  # noqa: ANN401  # JSON
    if not isinstance(given, dict):
        msg = "HEADERS.kafka must be an object"
        raise ScriptError(msg)
    return tuple((name, _header(name, value)) for name, value in given.items())


def _header(name: str, value: object) -> bytes | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower().encode()
        case str() | int() | float():
            return str(value).encode()
        case _:
            msg = f"HEADERS.kafka.{name} is nested: headers are flat"
            raise ScriptError(msg)
