"""
The scripts of a step: compiled once, called with JSON, answered in JSON.

Copying objects into Starlark one by one costs more than most scripts do, so they travel as one
text, which Starlark parses itself. Its parser sorts the names of an object, and has no integers of
more than 64 bits. Objects are copied where the order counts, which is XML, and for such integers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

import orjson
import starlark

from dedup.rules.json_text import loads
from outbox.envelope import Record
from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.formats.json_text import dumps
from spark_jobs.operators.aggregation.scripts.compiling import CHECKS, compiled, reason
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.step import NEVER

_CALL_DEPTH = 100
_LONGEST = 200
_LARGEST = 16 * 2**20
"""The most characters of an answer with its cache: no topic would take a longer one."""
_LARGEST_KEPT = 2**20
"""As above, for an answer that stays in the state, which is written with each batch."""
_WHOLE = {"aggregate", "key"}
_NO_ACCUMULATOR = {"NoneType", "struct"}
_MIB = 2**20
_TOGETHER = 128 * 2**20
_SHORT = 1_024
"""The most characters of a batch's answers together; answers up to `_SHORT` do not count."""
_DEEPEST = 100
LONGEST_KEY = 65_536
# orjson writes no more than 254 levels; this many lists around a value show if it is too deep.
_LEVELS = 254 - _DEEPEST

Caller: TypeAlias = Callable[[Callable[[], Any], int], Any]
"""Makes one call, whose input has so many characters, possibly with limits around it."""


class ScriptError(DovecoteError):
    """A script failed, took too much, or gave an answer that cannot be understood."""


class Answer(NamedTuple):
    """The return value of a script: a status, or a struct."""

    status: Any = None
    fields: Mapping[str, Any] = {}
    cache: Any = None


class Scripts:
    """
    The scripts of a step, ready to be called.

    Raises:
        BadSettings: one of them cannot be compiled, or lacks its function.
    """

    def __init__(
        self, settings: AggregationSettings, call: Caller = lambda work, _: work()
    ) -> None:
        self._call = call
        timed = settings.step.trigger.type == "timeFromEvent"
        found = settings.key, settings.trigger, settings.aggregate
        script = settings.aggregate
        parts = [
            ("key", settings.key),
            ("time" if timed else "trigger", settings.trigger),
            ("fold", script if settings.folds else None),
            ("aggregate", script if settings.concludes else None),
        ]
        self._modules = {
            name: compiled(text, name, settings.variables)
            for name, text in parts
            if text is not None
        }
        self._with_headers = any("headers" in text.text for text in found if text is not None)
        self._is_ordered = settings.step.format.output.type == "xml"
        self._left = NEVER

    def begin(self) -> None:
        """Begin a batch: the size of its answers is counted from 0."""
        self._left = _TOGETHER

    def has(self, name: str) -> bool:
        return name in self._modules

    def keys(
        self, events: Sequence[Any], records: Sequence[Record]
    ) -> Sequence["bytes | ScriptError"]:
        """Return the key that the script finds in each event, or the reason why it finds none."""
        try:
            found = self._called(
                "key", [self._given(*each, 0, {}) for each in zip(events, records, strict=True)]
            )
        except ScriptError as error:
            if len(events) == 1:
                return [error]
            # One of them is to blame, and the others must not suffer for it.
            pairs = zip(events, records, strict=True)
            return [self.keys([event], [record])[0] for event, record in pairs]
        return [_key(*each) for each in found]

    def trigger(self, event: Any, record: Record, now: int, cache: Any) -> Answer:  # noqa: ANN401
        """Return the trigger's answer to an event."""
        return self._one("trigger", event, record, now, cache)

    def time(self, event: Any, record: Record, now: int, cache: Any) -> tuple[str, Any]:  # noqa: ANN401
        """Return the time of day that the script finds in an event, and the cache."""
        found = self._one("time", event, record, now, cache)
        if not isinstance(found.status, str):
            msg = f"time must return text, not {_short(found.status)}"
            raise ScriptError(msg)
        return found.status, found.cache

    def aggregate(
        self,
        events: Sequence[Any],
        records: Sequence[Record],
        *,
        key: bytes,
        age: int,
        cache: Any,  # noqa: ANN401  # JSON
    ) -> Answer:
        """Return the script's answer to the events of a window."""
        sources = [(each.topic, _text(each.key), self._headers(each)) for each in records]
        return self._aggregated(events, sources, len(events), key=key, age=age, cache=cache)

    def fold(  # the script sees all of it
        self,
        folded: Any,  # noqa: ANN401  # JSON
        event: Any,  # noqa: ANN401  # JSON
        record: Record,
        *,
        key: bytes,
        count: int,
        cache: Any,  # noqa: ANN401  # JSON
    ) -> tuple[Any, Any]:
        """Return what the script folds an event into, and the cache."""
        given = self._given(event, record, 0, cache)
        given |= {"acc": folded, "w": _text(key), "n": count}
        kind, found, cache = self._called("fold", given)
        if kind in _NO_ACCUMULATOR:
            msg = f"fold must return the accumulator (a dict, a list, text or number), not {kind}"
            raise ScriptError(msg)
        return found, cache

    def conclude(self, folded: Any, count: int, *, key: bytes, age: int, cache: Any) -> Answer:  # noqa: ANN401  # JSON
        """Return the script's answer to what it has folded the events of a window into."""
        return self._aggregated(folded, [], count, key=key, age=age, cache=cache)

    def _aggregated(  # the script sees all of it
        self,
        events: Any,  # noqa: ANN401  # JSON
        sources: Sequence[Any],
        count: int,
        *,
        key: bytes,
        age: int,
        cache: Any,  # noqa: ANN401  # JSON
    ) -> Answer:
        given = {"in": events, "sources": sources, "n": count, "c": cache, "age": age}
        return self._asked("aggregate", given | {"k": _text(key)})

    def _one(self, name: str, event: Any, record: Record, now: int, cache: Any) -> Answer:  # noqa: ANN401, PLR0917
        return self._asked(name, self._given(event, record, now, cache))

    def _given(self, event: Any, record: Record, now: int, cache: Any) -> dict[str, Any]:  # noqa: ANN401
        return {
            "in": event,
            "t": record.topic,
            "k": _text(record.key),
            "h": self._headers(record),
            "now": now,
            "c": cache,
        }

    def _headers(self, record: Record) -> dict[str, str | None]:
        return headers(record) if self._with_headers else {}

    def _asked(self, name: str, given: Mapping[str, Any]) -> Answer:
        return _answer(*self._called(name, given))

    def _called(self, name: str, given: object) -> Any:  # noqa: ANN401  # JSON
        module = self._modules[name]
        try:
            passed = self._passed(given)
            size = len(passed if isinstance(passed, str) else dumps(given))
            scale = 1 + size // _MIB
            stop = chain(repeat(False, CHECKS * scale), repeat(True))  # noqa: FBT003  # answers
            options = starlark.EvalOptions(
                check_cancelled=stop.__next__, max_callstack_size=_CALL_DEPTH
            )
            answer = self._call(
                lambda: module.call_with(options, "dovecote_call", passed).value, size
            )
        except ScriptError:
            raise
        except BaseException as error:
            # A panic inside Starlark is not an Exception, but still only a failure of this call.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                msg = f"{name}: {reason(error)}"
                raise ScriptError(msg) from error
            raise
        return self._read(name, answer)

    def _passed(self, given: object) -> object:
        try:
            return given if self._is_ordered else orjson.dumps(given).decode()
        except TypeError:  # an integer of more than 64 bits
            return given

    def _read(self, name: str, answer: str) -> Any:  # noqa: ANN401  # JSON
        size = len(answer)
        largest = _LARGEST if name in _WHOLE else _LARGEST_KEPT
        if size > largest:
            msg = f"{name}: its answer has {size} characters, more than {largest}"
            raise ScriptError(msg)
        if size > _SHORT:
            if size > self._left:
                msg = f"{name}: the answers of a batch have more than {_TOGETHER} characters"
                raise ScriptError(msg)
            self._left -= size
        try:
            found = loads(answer)
        except ValueError as error:
            msg = f"{name}: its answer cannot be read: {error}"
            raise ScriptError(msg) from error
        if answer.count("[") + answer.count("{") > _DEEPEST and _is_too_deep(found):
            msg = f"{name}: its answer nests more than {_DEEPEST} levels deep"
            raise ScriptError(msg)
        return found


def headers(record: Record) -> dict[str, str | None]:
    """Return the headers of a record as text; if several have the same name, the last one."""
    return {
        name: None if value is None else value.decode(errors="replace")
        for name, value in record.headers
    }


def _is_too_deep(found: Any) -> bool:  # noqa: ANN401  # JSON
    try:
        orjson.dumps(reduce(lambda inner, _: [inner], range(_LEVELS), found))
    except orjson.JSONEncodeError:  # it is too deep, or has an integer of more than 64 bits
        return _levels(found) > _DEEPEST
    return False


def _levels(found: Any) -> int:  # noqa: ANN401  # JSON
    inner = found.values() if isinstance(found, dict) else found
    return 1 + max(map(_levels, inner), default=0) if isinstance(found, dict | list) else 0


def _key(kind: str, found: Any) -> "bytes | ScriptError":  # noqa: ANN401  # JSON
    if kind not in {"string", "int"} or found == "":
        return ScriptError(f"key must return text, not {_short(found)}")
    data: bytes = found.encode()
    if len(data) > LONGEST_KEY:
        return ScriptError(f"key must be shorter than {LONGEST_KEY} bytes, not {len(data)}")
    return data


def _answer(kind: str, found: Any, cache: Any) -> Answer:  # noqa: ANN401  # JSON
    if kind != "struct":
        return Answer(found, {}, cache)
    if unknown := {*found} - {"OUT", "HEADERS", "status", "cache"}:
        msg = f"a struct has OUT, HEADERS, status and cache, not {', '.join(sorted(unknown))}"
        raise ScriptError(msg)
    return Answer(found.get("status"), found, found.get("cache", cache))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _short(value: object) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
