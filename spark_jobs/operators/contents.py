"""The contents of a state in readable form: an entry per key, or per waiting record."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from dedup.rules.identity import identity
from spark_jobs.operators import delay
from spark_jobs.operators.alarms import Ident
from spark_jobs.operators.pairing import calls
from spark_jobs.operators.pairing.state import PairState
from spark_jobs.operators.reading import OperatorSettings, key_of
from spark_jobs.operators.sessions.keys import SessionsOfKey, SessionState
from spark_jobs.operators.settings import (
    PairingSettings,
    SessionsSettings,
    WindowedSettings,
    milliseconds,
    wait,
)
from spark_jobs.operators.step import NEVER

Entry: TypeAlias = dict[str, Any]


def entries(state: Any, settings: OperatorSettings) -> Iterator[Entry]:  # noqa: ANN401  # the operator's own
    """
    Yield what `state` holds for each key.

    `closes_after` is a stream time: an open item closes once the key's `stream_time` is greater.
    `closes_at` and `forgotten_at` are moments of the wall clock, valid if the source does not lag
    then; None: never by that clock.
    """
    match state, settings:
        case SessionState(), SessionsSettings():
            for ident, held in state.keys.items():
                yield _head(ident, held.clock, state.clocks, settings) | _sessions(
                    held, state, settings
                )
        case PairState(), PairingSettings():
            for ident, pair in state.keys.items():
                yield _head(ident, pair.clock, state.clocks, settings) | _calls(
                    pair, state, settings
                )
        case delay.DelayState(), _:
            for due, _, record in sorted(state.waiting, key=lambda each: each[:2]):
                yield _waiting(due, record)
        case _:
            for ident in getattr(state, "keys", ()):
                yield {"key": _key(ident, settings)}


def _head(
    ident: Ident, clock: int, clocks: dict[int, int], settings: WindowedSettings
) -> dict[str, Any]:
    head: dict[str, Any] = {"key": _key(ident, settings)}
    if settings.stream_time == "per_partition":
        return head | {"partition": ident[0], "stream_time": clocks.get(ident[0])}
    return head | {"stream_time": clock if settings.stream_time == "per_key" else clocks.get(0)}


def _key(ident: Ident, settings: OperatorSettings | WindowedSettings) -> Any:  # noqa: ANN401  # text or a list
    key = ident[1] if isinstance(ident, tuple) else ident
    if isinstance(settings, WindowedSettings):
        return key_of(key, settings)
    return key.decode(errors="replace")


def _sessions(held: SessionsOfKey, state: SessionState, settings: SessionsSettings) -> Entry:
    lasts = milliseconds(settings.gap) + milliseconds(settings.grace)
    since = max(held.arrived, state.behind_at)
    close, forget = wait(settings.close_after), wait(settings.forget_after)
    found = [
        {
            "start": each.start,
            "end": each.end,
            "value": each.value,
            "revision": each.revision,
            "closes_after": each.end + lasts,
            "closes_at": _moment(since + close),
        }
        for each in held.open
    ]
    return {"open": found, "forgotten_at": None if found else _moment(since + forget)}


def _calls(held: calls.CallsOfKey, state: PairState, settings: PairingSettings) -> Entry:
    lasts = milliseconds(settings.within) + milliseconds(settings.grace)
    close, forget = wait(settings.close_after), wait(settings.forget_after)
    found = [
        {
            "sides": _sides(call),
            "start": call.low,
            "end": call.high,
            "closes_after": call.low + lasts,
            "closes_at": _moment(max(call.arrived(), state.behind_at) + close),
        }
        for call in [*held.open, *map(calls.begin, held.events)]
    ]
    forgotten = _moment(max(held.arrived, state.behind_at) + forget)
    return {
        "open": found,
        "remembered": len(held.closed),
        "forgotten_at": None if found else forgotten,
    }


def _sides(call: calls.Call) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for event in call.used():
        place = {"time": event.time, "partition": event.partition, "offset": event.offset}
        found.setdefault(event.topic, []).append(place | {"field": event.field})
    return found


def _waiting(due: int, record: Any) -> Entry:  # noqa: ANN401  # a record, or what a test put there
    _, id_, round_ = identity(record)
    return {
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "id": id_,
        "round": round_,
        "due": due,
    }


def _moment(found: int) -> int | None:
    return None if found >= NEVER else found
