"""The state of an aggregation as bytes, and back: MessagePack, with its format's number."""

from typing import Any

import msgpack
from pydantic_core import from_json

from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.chunks import restored, size_of
from spark_jobs.operators.aggregation.formats.json_text import dumps
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.windows import (
    NOWHERE,
    Window,
    WindowsOfKey,
    WindowState,
)

FORMAT = 3
NAME = "aggregation"


class BadAggregationState(DovecoteError):
    """Bytes that are not a state of an aggregation, or have an unknown format."""


def encoded(state: WindowState) -> bytes:
    """Return `state` as bytes."""
    keys = [
        (
            key,
            held.clock,
            held.arrived,
            None if held.window is None else _window(held.window),
            None if held.cache == {} else dumps(held.cache),
            held.at,
            held.next,
            held.empty,
        )
        for key, held in state.keys.items()
    ]
    body = [state.behind_at, keys, state.daily, state.windows]
    data: bytes = msgpack.packb([FORMAT, NAME, body])
    return data


def decoded(operator: Aggregation, data: bytes) -> WindowState:
    """
    Return the state in `data`.

    Raises:
        BadAggregationState: it is not a state of an aggregation.
    """
    try:
        number, name, body = msgpack.unpackb(data)
    except (ValueError, TypeError) as error:
        msg = f"not a state: {error}"
        raise BadAggregationState(msg) from error
    if name != NAME or number not in range(1, FORMAT + 1):
        msg = f"the state is of {name}, format {number}, not of {NAME}, format 1 to {FORMAT}"
        raise BadAggregationState(msg)
    behind_at, keys, *rest = body
    daily = rest[0] if rest else None
    numbered = rest[1] if len(rest) > 1 else 0
    held = {
        key: WindowsOfKey(
            clock,
            arrived,
            None if window is None else _restored(window, number),
            {} if cache is None else from_json(cache),
            at,
            next_,
            empty,
        )
        for key, clock, arrived, window, cache, at, next_, empty in keys
    }
    opened = [each.window for each in held.values() if each.window is not None]
    if any((each.last == NOWHERE) == operator.folds for each in opened):
        msg = (
            "an open window was kept by another kind of script, with `fold` or without: take the "
            "script back until its windows are closed, or begin with a new checkpoint"
        )
        raise BadAggregationState(msg)
    return operator.restore(held, behind_at, daily, numbered)


def _window(window: Window) -> tuple[Any, ...]:
    events = [tuple(each) for each in window.events]
    found = (
        *(window.start, window.end, window.opened, window.touched),
        *(events, window.revision, window.tail),
    )
    if window.number == 0 and window.last == NOWHERE:
        return found  # the most common case, and the shortest
    stored = window.number, window.chunks, window.count, window.size
    return *found, *stored, dumps(window.folded), window.last


def _restored(found: list[Any], number: int) -> Window:
    if number < FORMAT:  # formats before this one had no size
        found.insert(6, sum(size_of(restored(each)) for each in found[4]))
    start, end, opened, touched, tail, revision, size, *rest = found
    events = [restored(each) for each in tail]
    window = Window(start, end, opened, touched, events, revision, len(events), size, size)
    if rest:
        window.number, window.chunks, window.count, window.size, folded, last = rest
        window.folded, window.last = from_json(folded), tuple(last)
    return window
