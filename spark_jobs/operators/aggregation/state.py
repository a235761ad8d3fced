"""The state of an aggregation as bytes, and back: MessagePack, with its format's number."""

from typing import Any

import msgpack
import orjson

from outbox.envelope import Record
from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.windows import Window, WindowsOfKey, WindowState

FORMAT = 2
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
            None if held.cache == {} else orjson.dumps(held.cache),
            held.at,
            held.next,
            held.empty,
        )
        for key, held in state.keys.items()
    ]
    data: bytes = msgpack.packb([FORMAT, NAME, [state.behind_at, keys, state.daily]])
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
    if name != NAME or number not in {FORMAT - 1, FORMAT}:
        msg = (
            f"the state is of {name}, format {number}, not of {NAME}, format {FORMAT - 1} or "
            f"{FORMAT}"
        )
        raise BadAggregationState(msg)
    behind_at, keys, *rest = body
    daily = rest[0] if rest else None
    held = {
        key: WindowsOfKey(
            clock,
            arrived,
            None if window is None else _restored(window),
            {} if cache is None else orjson.loads(cache),
            at,
            next_,
            empty,
        )
        for key, clock, arrived, window, cache, at, next_, empty in keys
    }
    return operator.restore(held, behind_at, daily)


def _window(window: Window) -> tuple[Any, ...]:
    events = [tuple(each) for each in window.events]
    return window.start, window.end, window.opened, window.touched, events, window.revision


def _restored(found: list[Any]) -> Window:
    start, end, opened, touched, events, revision = found
    return Window(start, end, opened, touched, [_record(each) for each in events], revision)


def _record(found: list[Any]) -> Record:
    record = Record._make(found)
    return record._replace(headers=[(name, value) for name, value in record.headers])
