"""
The state of an operator as bytes, and back: MessagePack, beginning with its format's number.

A state of the previous format is converted when it is read. Only what cannot be computed is
stored; alarms are set anew. The changes alone can be stored as well, if the whole state was.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from outbox.envelope import Record
from outbox.errors import DovecoteError
from spark_jobs.operators import delay, extent
from spark_jobs.operators.aggregation.guard import Guarded
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.helper import SharedState as Elsewhere
from spark_jobs.operators.aggregation.state import BadAggregationState, decoded, encoded
from spark_jobs.operators.alarms import Ident
from spark_jobs.operators.changes import Delta
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.keyed import KeyedState
from spark_jobs.operators.pairing.calls import Call, CallsOfKey, Event, begin, remembered
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.pairing.state import PairState
from spark_jobs.operators.sessions.keys import Open, SessionsOfKey, SessionState
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.step import NEVER, Operator

FORMAT = 2
IN_PARTS = 3
"""The format of changes, and of what lists the parts of a state; no earlier version reads it."""
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
    kind = type(operator)
    return _document(FORMAT, _NAMES[kind], _CONTENTS[kind](state, None))


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
    number, name, body = _unpacked(data)
    if name != _NAMES[type(operator)]:
        msg = f"the state is of {name}, not of {_NAMES[type(operator)]}"
        raise BadState(msg)
    if number == FORMAT - 1:
        body = _UPGRADES[name](body)
    elif number != FORMAT:
        raise BadState(_other_format(number))
    state = operator.start()
    _RENEWALS[type(operator)](operator, state, body)
    return state


def name_of(operator: Operator[Any]) -> str:
    """Return the name with which a state begins."""
    return _NAMES[type(operator)]


def has_deltas(operator: Operator[Any]) -> bool:
    """Return whether the changes in this operator's states are known."""
    return type(operator) in _RENEWALS


def delta(operator: Operator[Any], state: Any) -> Delta | None:  # noqa: ANN401  # as above
    """Return what has changed in `state`; None: so much has that the whole state is better."""
    kind, changes = type(operator), state.changes
    if changes.is_all or _MANY * (len(changes.touched) + len(changes.gone)) > extent.keys(state):
        return None
    found = _CONTENTS[kind](state, changes.touched)
    found.rest.append(list(changes.gone))
    return Delta(_document(IN_PARTS, _NAMES[kind], found), found.count)


def apply(operator: Operator[Any], state: Any, data: bytes) -> None:  # noqa: ANN401  # as above
    """
    Make in `state` the changes that `delta` has returned for the state that it was then.

    Raises:
        BadState: they are no such changes.
    """
    kind = type(operator)
    number, name, body = _unpacked(data)
    if (number, name) != (IN_PARTS, _NAMES[kind]):
        msg = f"the changes are of {name}, format {number}, not of {_NAMES[kind]}, {IN_PARTS}"
        raise BadState(msg)
    *rest, gone, keys = body
    state.remove([_ident(each) for each in gone])
    _RENEWALS[kind](operator, state, [*rest, keys])


_MANY = 2
"""
The whole state is stored if at least one key in so many has changed.

Every part of a state is written twice: as itself, and with the next whole state.
"""


def _unpacked(data: bytes) -> Any:  # noqa: ANN401  # MessagePack
    try:
        # Older versions let numbers be keys in the value of a session.
        found = msgpack.unpackb(data, ext_hook=_extended, strict_map_key=False)
    except (ValueError, TypeError) as error:
        msg = f"not a state: {error}"
        raise BadState(msg) from error
    if not isinstance(found, list) or len(found) != _FIELDS:
        msg = "not a state: it does not begin with its format and its operator"
        raise BadState(msg)
    return found


_FIELDS = 3
"""The number of the format, the operator's name, and the rest."""


def _other_format(number: object) -> str:
    is_newer = isinstance(number, int) and number > IN_PARTS
    version = "the newer one that wrote it" if is_newer else "those between, one after the other"
    return (
        f"the state has format {number}; this version reads {FORMAT - 1} to {IN_PARTS}: run "
        f"{version}, or begin with a new checkpoint (and `--adopt`, once)"
    )


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of a state, or of its changes."""

    rest: list[Any]
    """The values that are no key's."""
    count: int
    rows: Callable[[], Iterable[Any]]
    """Makes what is stored of each key; each is packed before the next one is made."""


def _document(number: int, name: str, contents: _Contents) -> bytes:
    try:
        return _packed(number, name, contents)
    except OverflowError:
        rows = _without_big([*contents.rows()])
        rest = _without_big(contents.rest)
        return _packed(number, name, _Contents(rest, contents.count, lambda: rows))


def _packed(number: int, name: str, contents: _Contents) -> bytes:
    packer = msgpack.Packer(autoreset=False)
    pack = packer.pack
    packer.pack_array_header(_FIELDS)
    pack(number)
    pack(name)
    packer.pack_array_header(len(contents.rest) + 1)
    for each in contents.rest:
        pack(each)
    packer.pack_array_header(contents.count)
    for row in contents.rows():
        pack(row)
    data: bytes = packer.bytes()
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


def _sessions(state: SessionState, of: Collection[Ident] | None) -> _Contents:
    return _keyed(state, of, _session)


def _session(ident: Ident, held: SessionsOfKey) -> tuple[Any, ...]:
    open_ = [(each.start, each.end, each.value, each.revision) for each in held.open]
    return ident, held.clock, held.arrived, held.floor, open_


def _pairing(state: PairState, of: Collection[Ident] | None) -> _Contents:
    return _keyed(state, of, _pair)


def _pair(ident: Ident, held: CallsOfKey) -> tuple[Any, ...]:
    return (
        ident,
        held.clock,
        held.arrived,
        [_event(event) for event in held.events] or [_call(call) for call in held.open],
        [_call(remembered(call)) for call in held.closed],
    )


def _call(call: Call) -> tuple[Any, ...]:
    one, other = call.sides
    if len(one) + len(other) == 1 and not call.dropped:  # the usual case
        return _event(one[0] if one else other[0])
    sides = [_event(event) for event in one], [_event(event) for event in other]
    return call.low, call.high, sides, [_event(event) for event in call.dropped]


def _event(event: Event) -> tuple[Any, ...]:
    time, _, *rest = event  # the topic follows from the side
    return time, *rest


def _delay(state: delay.DelayState, of: Collection[int] | None) -> _Contents:
    found = state.waiting if of is None else [each for each in state.waiting if each[1] in of]
    return _Contents([state.taken], len(found), lambda: found)


def _keyed(
    state: KeyedState[Any],
    of: Collection[Ident] | None,
    row: Callable[[Ident, Any], tuple[Any, ...]],
) -> _Contents:
    """Return the contents with those keys of `of` that there still are, or with all."""
    keys = state.keys
    idents = list(keys if of is None else filter(keys.__contains__, of))
    rest = [state.behind_at, list(state.clocks.items())]
    return _Contents(rest, len(idents), lambda: map(row, idents, map(keys.__getitem__, idents)))


def _renew_sessions(operator: Sessions, state: SessionState, body: list[Any]) -> None:
    behind_at, clocks, keys = body
    held = {
        _ident(ident): SessionsOfKey(clock, arrived, floor, [Open(*each) for each in open_])
        for ident, clock, arrived, floor, open_ in keys
    }
    operator.renew(state, held, dict(clocks), behind_at)


def _renew_pairing(operator: Pairing, state: PairState, body: list[Any]) -> None:
    behind_at, clocks, keys = body
    topics = operator.topics
    held = {_ident(found[0]): _restored_held(found, topics) for found in keys}
    operator.renew(state, held, dict(clocks), behind_at)


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


def _renew_delay(operator: Delay, state: delay.DelayState, body: list[Any]) -> None:
    taken, waiting = body
    operator.renew(state, [(due, number, _record(of)) for due, number, of in waiting], taken)


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


_CONTENTS: Mapping[type, Callable[[Any, Collection[Any] | None], _Contents]] = {
    Sessions: _sessions,
    Pairing: _pairing,
    Delay: _delay,
}
"""Return the contents of a state with some keys, or with all."""
_RENEWALS: Mapping[type, Callable[[Any, Any, list[Any]], None]] = {
    Sessions: _renew_sessions,
    Pairing: _renew_pairing,
    Delay: _renew_delay,
}
_UPGRADES: Mapping[str, Callable[[list[Any]], list[Any]]] = {
    "sessions": _without_behind,
    "pairing": _without_topics,
    "delay": _without_count,
}
_NAMES: Mapping[type, str] = {Sessions: "sessions", Pairing: "pairing", Delay: "delay"}
