"""An operator's outputs as lines of a replay: one JSON object each."""

from typing import Any

from pydantic_core import from_json

from dedup.replay.trace import Traced, shown
from dedup.rules.identity import identity
from outbox.envelope import Record
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.reading import OperatorSettings, key_of
from spark_jobs.operators.settings import WindowedSettings
from spark_jobs.operators.step import (
    Ahead,
    Closed,
    Failed,
    Input,
    Late,
    Made,
    Output,
    Paired,
    Released,
    Session,
    Skipped,
)


def line(output: Output, now: int, settings: OperatorSettings) -> dict[str, Any]:
    """Return the line for `output` of a step at `now`."""
    match output:
        case Session(kind, key, start, end, value, revision):
            head = {"kind": kind, "key": _key(key, settings), "at": now}
            return head | {"start": start, "end": end, "value": value, "revision": revision}
        case Paired(key, _, _, sides):
            head = {"kind": "result", "key": _key(key, settings), "at": now}
            return head | {"value": result(output, settings), "sides": sides}
        case Made() | Released(Record()):
            return (
                _made(output, now, settings)
                if isinstance(output, Made)
                else _released(output.value, now)
            )
        case Late(record, reason) | Ahead(record, reason):
            head = _about(record, "late", now, settings)
            head |= {"timestamp": record.time, "value": _value(record), "reason": reason}
            close_time = output.close_time if isinstance(output, Late) else None
            return head if close_time is None else head | {"close_time": close_time}
        case Failed(record, reason):
            return _about(record, "error", now, settings) | {"reason": reason}
        case Skipped(key, topic, partition, offset, reason, events):
            place = {"topic": topic, "partition": partition, "offset": offset}
            head = {"kind": "skip", "key": _key(key, settings), "at": now}
            return head | place | {"reason": reason} | ({"events": events} if events > 1 else {})
        case Released(value):
            msg = f"the released value is no record: {type(value).__name__}"
            raise TypeError(msg)
        case Closed():
            msg = "sessions by columns have a line each: ask for their `sessions`"
            raise TypeError(msg)


def result(paired: Paired, settings: OperatorSettings) -> dict[str, Any]:
    """Return the output object of a call: its key, its time, and the field of each side."""
    return {**named(paired.key, settings), "ts": paired.time, **paired.fields}


def named(key: bytes, settings: OperatorSettings) -> dict[str, Any]:
    """Return the fields of a result that form its key."""
    names = getattr(settings, "key", "record")
    if names == "record":
        return {"key": _key(key, settings)}
    return dict(zip(names, from_json(key), strict=True))


def _key(key: bytes | None, settings: OperatorSettings) -> str | list[Any] | None:
    if key is None:
        return None
    if not isinstance(settings, WindowedSettings):
        return key.decode(errors="replace")
    return key_of(key, settings)


def _about(record: Input, kind: str, now: int, settings: OperatorSettings) -> dict[str, Any]:
    return {
        "kind": kind,
        "key": _key(record.key, settings),
        "at": now,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }


def _value(record: Input) -> Any:  # noqa: ANN401  # JSON
    return record.row.value if isinstance(record.row, Traced) else record.value


def _made(made: Made, now: int, settings: OperatorSettings) -> dict[str, Any]:
    return {
        "kind": "result",
        "key": made.window.decode(errors="replace"),
        "at": now,
        "fired": made.reason,
        "start": made.start,
        "end": made.end,
        "events": made.events,
        "revision": made.revision,
        "topic": made.topic,
        "target_key": None if made.key is None else made.key.decode(errors="replace"),
        "headers": {
            name: None if text is None else text.decode(errors="replace")
            for name, text in made.headers
        },
        "value": _passed(made.value, settings) if made.is_passed else made.shown,
    }


def _passed(value: bytes | None, settings: OperatorSettings) -> Any:  # noqa: ANN401  # JSON
    """Return a value as the trace had it."""
    if isinstance(settings, AggregationSettings) and settings.step.format.input.type != "json":
        return shown(value or b"")
    try:
        return from_json(value or b"null")
    except ValueError:
        return shown(value or b"")


def _released(record: Record, now: int) -> dict[str, Any]:
    _, id_, round_ = identity(record)
    return {
        "kind": "result",
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "at": now,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "id": id_,
        "round": round_,
        "value": None if record.value is None else from_json(record.value),
    }
