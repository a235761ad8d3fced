"""
The state of an operator as bytes, and back: MessagePack, beginning with its format's number.

A state of the previous format is converted when it is read. Only what cannot be computed is
stored; alarms are set anew.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgpack

from outbox.envelope import Record
from outbox.errors import DovecoteError
from spark_jobs.operators import delay
from spark_jobs.operators.aggregation.guard import Guarded
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.helper import SharedState as Elsewhere
from spark_jobs.operators.aggregation.state import BadAggregationState, decoded, encoded
from spark_jobs.operators.alarms import Ident
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.pairing import operator as pairing
from spark_jobs.operators.pairing.calls import Call, CallsOfKey, Event, begin, remembered
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.sessions.keys import Open, SessionsOfKey, SessionState
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.step import NEVER, Operator

FORMAT = 2
_EVENT_FIELDS = len(Event._fields) - 1
"""The number of an event's stored fields; a call has fewer."""
_BIG = 1
"""The extension type of an integer of more than 64 bits."""


class BadState(DovecoteError):
    """Bytes that are not a state of this operator, or have an unknown format."""


def encode(operator: Operator[Any], state: Any) -> bytes:  # noqa: ANN401  # the operator's own
    """Return `state` as bytes."""
    if isinstance(state, Elsewhere):
        return state.data
    if isinstance(operator, Aggregation):
        return encoded(state)
    if isinstance(state, SessionState):
        return _sessions(state)
    kind = type(operator)
    return _whole([FORMAT, _NAMES[kind], _BODIES[kind](state)])


def decode(operator: Operator[Any], data: bytes) -> Any:  # noqa: ANN401  # the operator's own
    """
    Return the state in `data`.

    Raises:
        BadState: it is not a state of this operator.
    """
    if isinstance(operator, Guarded):
        return Elsewhere(data)
    if isinstance(operator, Aggregation):
        try:
            return decoded(operator, data)
        except BadAggregationState as error:
            raise BadState(str(error)) from error
    try:
        number, name, body = msgpack.unpackb(data, ext_hook=_extended)
    except (ValueError, TypeError) as error:
        msg = f"not a state: {error}"
        raise BadState(msg) from error
    if name != _NAMES[type(operator)]:
        msg = f"the state is of {name}, not of {_NAMES[type(operator)]}"
        raise BadState(msg)
    if number == FORMAT - 1:
        body = _UPGRADES[name](body)
    elif number != FORMAT:
        raise BadState(_other_format(number))
    return _RESTORE[type(operator)](operator, body)


def _other_format(number: object) -> str:
    is_newer = isinstance(number, int) and number > FORMAT
    version = "the newer one that wrote it" if is_newer else "those between, one after the other"
    return (
        f"the state has format {number}; this version reads {FORMAT - 1} and {FORMAT}: run "
        f"{version}, or begin with a new checkpoint (and `--adopt`, once)"
    )


def _whole(document: object) -> bytes:
    try:
        return _packed(document)
    except OverflowError:
        return _packed(_without_big(document))


def _packed(document: object) -> bytes:
    data: bytes = msgpack.packb(document)
    return data


def _without_big(value: Any) -> Any:  # noqa: ANN401  # JSON
    match value:
        case dict():
            return {name: _without_big(each) for name, each in value.items()}
        case list() | tuple():
            return [_without_big(each) for each in value]
        case int() if not -(2**63) <= value < 2**63:
            return msgpack.ExtType(_BIG, str(value).encode())
        case _:
            return value


def _extended(code: int, data: bytes) -> int:
    if code != _BIG:
        msg = f"extension {code} is unknown"
        raise ValueError(msg)
    return int(data)


def _sessions(state: SessionState) -> bytes:
    """
    Return a state of sessions as bytes.

    Keys that have not changed are not packed again; in a large state, these are most.
    """
    keys, packed, touched = state.keys, state.packed, state.touched
    if _MANY * len(touched) > len(keys):  # together, each takes half as long
        packed.clear()
        touched.clear()
        told = [_of_key(ident, held) for ident, held in keys.items()]
        clocks = list(state.clocks.items())
        return _whole([FORMAT, _NAMES[Sessions], [state.behind_at, clocks, told]])
    new = list(islice(reversed(keys), len(keys) - len(packed)))
    for ident in chain(filter(packed.__contains__, touched), reversed(new)):
        packed[ident] = _whole(_of_key(ident, keys[ident]))
    touched.clear()
    head = [FORMAT, _NAMES[Sessions], state.behind_at, list(state.clocks.items())]
    number, name, behind_at, packed_clocks = map(_packed, head)
    count = _PACKER.pack_array_header(len(keys))
    parts = _THREE, number, name, _THREE, behind_at, packed_clocks, count, *packed.values()
    return b"".join(parts)


def _of_key(ident: Ident, held: SessionsOfKey) -> tuple[Any, ...]:
    open_ = [(each.start, each.end, each.value, each.revision) for each in held.open]
    return ident, held.clock, held.arrived, held.floor, open_


_MANY = 2
"""All keys are packed together if at least one in so many has changed."""
_PACKER = msgpack.Packer()
_THREE: bytes = _PACKER.pack_array_header(3)


def _pairing(state: pairing.PairState) -> list[Any]:
    keys = [
        (
            ident,
            held.clock,
            held.arrived,
            [_event(event) for event in held.events] or [_call(call) for call in held.open],
            [_call(remembered(call)) for call in held.closed],
        )
        for ident, held in state.keys.items()
    ]
    return [state.behind_at, list(state.clocks.items()), keys]


def _call(call: Call) -> tuple[Any, ...]:
    one, other = call.sides
    if len(one) + len(other) == 1 and not call.dropped:  # the usual case
        return _event(one[0] if one else other[0])
    sides = [_event(event) for event in one], [_event(event) for event in other]
    return call.low, call.high, sides, [_event(event) for event in call.dropped]


def _event(event: Event) -> tuple[Any, ...]:
    time, _, *rest = event  # the topic follows from the side
    return time, *rest


def _delay(state: delay.DelayState) -> list[Any]:
    return [state.taken, state.waiting]


def _restored_sessions(operator: Sessions, body: list[Any]) -> SessionState:
    behind_at, clocks, keys = body
    held = {
        _ident(ident): SessionsOfKey(clock, arrived, floor, [Open(*each) for each in open_])
        for ident, clock, arrived, floor, open_ in keys
    }
    return operator.restore(held, dict(clocks), behind_at)


def _restored_pairing(operator: Pairing, body: list[Any]) -> pairing.PairState:
    behind_at, clocks, keys = body
    topics = operator.topics
    held = {_ident(found[0]): _restored_held(found, topics) for found in keys}
    return operator.restore(held, dict(clocks), behind_at)


def _restored_held(found: list[Any], topics: Sequence[str]) -> CallsOfKey:
    _, clock, arrived, open_, closed = found
    gone = [_restored_call(call, topics) for call in closed]
    if all(len(each) == _EVENT_FIELDS for each in open_):  # the usual case
        return CallsOfKey(
            clock, arrived, [_restored_event(each, topics) for each in open_], closed=gone
        )
    calls = [_restored_call(call, topics) for call in open_]
    return CallsOfKey(clock, arrived, open=calls, closed=gone)


def _restored_call(found: list[Any], topics: Sequence[str]) -> Call:
    if len(found) == _EVENT_FIELDS:
        return begin(_restored_event(found, topics))
    low, high, (one, other), dropped = found
    one, other, dropped = (
        [_restored_event(event, topics) for event in events] for events in (one, other, dropped)
    )
    return Call(low, high, (one, other), dropped)


def _restored_event(found: list[Any], topics: Sequence[str]) -> Event:
    time, partition, offset, side, arrived, digest, field = found
    # Calls tuple's own constructor; the named tuple's takes three times as long.
    return tuple.__new__(
        Event, (time, topics[side], partition, offset, side, arrived, digest, field)
    )


def _restored_delay(operator: Delay, body: list[Any]) -> delay.DelayState:
    taken, waiting = body
    return operator.restore([(due, n, _record(found)) for due, n, found in waiting], taken)


def _record(found: list[Any]) -> Record:
    record = Record(*found)
    return record._replace(headers=[(name, value) for name, value in record.headers])


def _ident(found: Any) -> Ident:  # noqa: ANN401  # a key, or partition and key
    return tuple(found) if isinstance(found, list) else found


def _without_behind(body: list[Any]) -> list[Any]:
    """Convert format 1, which did not know of sources that lag."""
    return [-NEVER, *body]


def _without_topics(body: list[Any]) -> list[Any]:
    """Convert format 1 of `pairing`, which named the topic of each event."""
    clocks, keys = body

    def call(found: list[Any]) -> list[Any]:
        low, high, sides, dropped = found
        return [low, high, [events(each) for each in sides], events(dropped)]

    def events(found: list[Any]) -> list[Any]:
        return [[time, *rest] for time, _, *rest in found]

    return _without_behind(
        [clocks, [[*key, [call(c) for c in o], [call(c) for c in d]] for *key, o, d in keys]]
    )


def _without_count(body: list[Any]) -> list[Any]:
    """Convert format 1 of `delay`, without a count: waiting records get the first numbers."""
    (waiting,) = body
    return [1 + max((number for _, number, _ in waiting), default=-1), waiting]


_BODIES: Mapping[type, Callable[[Any], list[Any]]] = {
    Pairing: _pairing,
    Delay: _delay,
}
_RESTORE: Mapping[type, Callable[[Any, list[Any]], Any]] = {
    Sessions: _restored_sessions,
    Pairing: _restored_pairing,
    Delay: _restored_delay,
}
_UPGRADES: Mapping[str, Callable[[list[Any]], list[Any]]] = {
    "sessions": _without_behind,
    "pairing": _without_topics,
    "delay": _without_count,
}
_NAMES: Mapping[type, str] = {Sessions: "sessions", Pairing: "pairing", Delay: "delay"}
