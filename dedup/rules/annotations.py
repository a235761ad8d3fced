"""Decode values into the classes that the annotation of a handler names."""

import inspect
import json
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Union, get_args, get_origin

import msgspec
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.dataclasses import rebuild_dataclass

from dedup.rules.policies.decode import Misfit, with_value
from dedup.rules.record import Record
from outbox.errors import BadSettings
from outbox.event import Event
from outbox.writing.declared import declared

_VERSION = "dataversion"
_ANY = (Any, object)
_NONE = type(None)
_OF_JSON: tuple[Any, ...] = (None, True, 0, 0.0, "", [], {})
_MOST_SAID = 3
_MOST_KINDS = 1_000


@dataclass(frozen=True, slots=True)
class _Class:
    """One class of values, and how to make an object of it."""

    kind: Any
    type: str | None
    version: int | None
    read: Callable[[bytes], object]
    """From the bytes of a record."""
    convert: Callable[[object], object]
    """From a value that was decoded already."""


@dataclass(slots=True)
class Typed:
    """The classes of values that a handler takes."""

    handler: str
    classes: list[_Class] = field(default_factory=list)
    takes_others: bool = False
    """Whether it takes events of other types, with values as they are decoded."""
    takes_none: bool = False
    """Whether it takes tombstones."""
    is_json: bool = True

    @property
    def _only(self) -> _Class | None:
        """The class of all values, if there is but one, which then takes every version."""
        return self.classes[0] if len(self.classes) == 1 else None

    def event(self, record: Record) -> Event[Any]:
        """
        Return the event of a record, with an object of the class that it is for.

        Raises:
            Misfit: the handler takes no such events, or the value does not fit; the message
                has the path.
            InvalidEvent: the record cannot be read.
        """
        if record.value is None:
            if self.takes_none or self.takes_others:
                return record.event
            raise Misfit(self._said(record, "it is a tombstone", "annotate `Event[… | None]`"))
        event = with_value(record, None)
        found = self._of(event)
        if found is None:
            if self.takes_others:
                return record.event
            what = f"{self.handler} takes no events of type {event.type[:100]!r}"
            raise Misfit(self._said(record, what, "set `filter`, or annotate `Event` as well"))
        try:
            value = found.read(record.value) if self.is_json else found.convert(record.event.value)
        # pydantic's errors are of values, too; what nests too deeply ends in the last one.
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            what = f"the value is no {found.kind.__name__}: {_path_of(error)}"
            raise Misfit(self._said(record, what)) from error
        object.__setattr__(event, "value", value)  # nobody else has it yet
        return event

    def _of(self, event: Event[Any]) -> _Class | None:
        if self._only is not None and self._only.type in {event.type, None}:
            return self._only
        version = event.attribute(_VERSION)
        named = [each for each in self.classes if each.type in {event.type, None}]
        exact = [each for each in named if version and str(each.version) == version]
        # A class without a version takes all; one alone takes what it can.
        plain = [each for each in named if each.version is None]
        fitting = exact or plain or (named if len(named) == 1 else [])
        return fitting[0] if fitting else None

    @staticmethod
    def _said(record: Record, what: str, remedy: str = "") -> str:
        return f"{record.place}: {what}" + (f"; {remedy}" if remedy else "")


def typed(handler: Callable[..., Any], *, value: str, several: bool = False) -> Typed | None:
    """
    Return the classes that `Event[…]` names in the annotation of a handler's first parameter.

    `value` is the format of the values in the settings; `several`: the handler takes a list.

    Raises:
        BadSettings: the annotation cannot be resolved, or its classes cannot be told apart.
    """
    name, annotation = _annotation(handler)
    if several and get_origin(annotation) in {list, Sequence}:
        (annotation,) = get_args(annotation)
    parts = _parts(annotation)
    if not any(get_origin(each) is Event for each in parts):
        return None
    found = Typed(name, is_json=value == "json")
    for part in parts:
        if part is Event:
            found.takes_others = True
            continue
        if get_origin(part) is not Event:
            msg = f"handler {name} takes {part!r} beside an Event[…]; name only events"
            raise BadSettings(msg)
        for kind in _parts(get_args(part)[0]):
            _add(found, kind)
    if not found.classes:
        return None
    if value == "raw":
        msg = f'handler {name} names classes, and value = "raw" decodes none; set value = "json"'
        raise BadSettings(msg)
    _require_apart(found)
    return found


def _add(found: Typed, kind: Any) -> None:  # noqa: ANN401  # a class, or what stands for one
    if kind is _NONE:
        found.takes_none = True
    elif kind in _ANY or (get_origin(kind) or kind) in {dict, list, str, int, float, bool}:
        found.takes_others = True
    else:
        found.classes.append(_class(found.handler, kind, is_json=found.is_json))


def _class(handler: str, kind: Any, *, is_json: bool) -> _Class:  # noqa: ANN401  # as above
    known = declared(kind) if isinstance(kind, type) else None
    type_, version = (None, None) if known is None else (known.type, known.version)
    try:
        if _is_pydantic(kind):
            _complete(kind)
            adapter = TypeAdapter(kind)
            return _Class(kind, type_, version, adapter.validate_json, adapter.validate_python)
        decoder = msgspec.json.Decoder(kind, dec_hook=partial(_inner, is_json=True))
        for inner in filter(_is_pydantic, _custom(kind, is_needed=False)):
            _complete(inner)
        if is_json:  # values of other formats may have such objects
            _require_makeable(kind)
        convert = partial(msgspec.convert, type=kind, dec_hook=partial(_inner, is_json=False))
        return _Class(kind, type_, version, decoder.decode, convert)
    except (TypeError, NameError, PydanticUserError) as error:
        msg = f"handler {handler}: no values of {kind!r} can be decoded: {error}"
        raise BadSettings(msg) from error


def _complete(kind: Any) -> None:  # noqa: ANN401  # as above
    """Resolve names that a class of pydantic could not: it raises here, and not at each record."""
    if getattr(kind, "__pydantic_complete__", True):
        return
    if hasattr(kind, "model_rebuild"):
        kind.model_rebuild()
    else:
        rebuild_dataclass(kind)


def _custom(kind: Any, *, is_needed: bool) -> Iterator[Any]:  # noqa: ANN401  # as above
    """
    Yield the classes within one that msgspec does not make, or itself.

    `is_needed`: only if each value has an object of it.
    """
    seen: set[int] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting += each
        elif isinstance(each, msgspec.Struct) and id(each) not in seen:
            seen.add(id(each))  # a class may contain itself
            if isinstance(each, msgspec.inspect.CustomType):
                yield each.cls
            elif is_needed:
                waiting += [field.type for field in getattr(each, "fields", ()) if field.required]
            else:
                waiting += [getattr(each, name) for name in each.__struct_fields__]


def _require_makeable(kind: Any) -> None:  # noqa: ANN401  # as above
    """
    Check that each value can have all objects that it needs.

    Raises:
        TypeError: the class, or that of a field that each value has, is made by neither library.
    """
    for each in _custom(kind, is_needed=True):
        if not _is_makeable(each):
            msg = (
                f"{getattr(each, '__name__', each)} is no class that JSON becomes: make it a "
                "dataclass, a Struct of msgspec, an attrs class, a TypedDict or a model of "
                "pydantic"
            )
            raise TypeError(msg)


def _is_makeable(kind: Any) -> bool:  # noqa: ANN401  # as above
    """Return whether pydantic makes it, or some value of JSON is one, as of `object`."""
    if _is_pydantic(kind):
        return True
    try:
        return any(isinstance(each, get_origin(kind) or kind) for each in _OF_JSON)
    except TypeError:  # of a Protocol that nothing can be asked for
        return False


def _is_pydantic(kind: Any) -> bool:  # noqa: ANN401  # as above
    return hasattr(kind, "__pydantic_serializer__")


def _inner(kind: Any, given: object, *, is_json: bool) -> object:  # noqa: ANN401  # as above
    """Return an object of a class within another one that msgspec does not know, but pydantic."""
    if not _is_pydantic(kind):
        return given  # msgspec refuses what is no object of the class
    adapter = _adapter(kind)
    try:
        if is_json:  # strict models take texts for times from JSON alone
            return adapter.validate_json(json.dumps(given))
        return adapter.validate_python(given)
    except ValidationError as error:
        # Its own text has the value.
        raise ValueError(_by_pydantic(error, "")) from None


_adapter: Callable[[Any], TypeAdapter[Any]] = lru_cache(_MOST_KINDS)(TypeAdapter)


def _require_apart(found: Typed) -> None:
    seen: set[tuple[str | None, int | None]] = set()
    for each in found.classes:
        if each.type is None and len(found.classes) > 1:
            msg = (
                f"handler {found.handler} takes several classes, and nothing says which events "
                f"are {each.kind.__name__}: decorate it with @event(…)"
            )
            raise BadSettings(msg)
        if (each.type, each.version) in seen:
            msg = (
                f"handler {found.handler} takes two classes of type {each.type!r}: give each a "
                "`version` of its own"
            )
            raise BadSettings(msg)
        seen.add((each.type, each.version))


def _annotation(handler: Callable[..., Any]) -> tuple[str, Any]:
    called: Any = handler
    while isinstance(called, partial):
        called = called.func
    name = getattr(called, "__name__", type(called).__name__)
    try:
        signature = inspect.signature(handler, follow_wrapped=True)
    except (TypeError, ValueError):
        return name, None
    first = next(iter(signature.parameters.values()), None)
    annotation = None if first is None else first.annotation
    if not isinstance(annotation, str):
        return name, annotation
    function = inspect.unwrap(called)
    function = function if inspect.isroutine(function) else type(function).__call__
    function = getattr(function, "__func__", function)
    names = {**getattr(function, "__globals__", {})}
    names |= inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    try:
        return name, eval(annotation, names)  # noqa: S307  # the handler's own source
    except Exception as error:
        if "[" not in annotation:
            return name, None
        msg = (
            f"the annotation {annotation!r} of handler {name} cannot be resolved "
            f"({type(error).__name__}: {error}): import its classes at run time, and not only for "
            "type checkers"
        )
        raise BadSettings(msg) from error


def _parts(annotation: Any) -> tuple[Any, ...]:  # noqa: ANN401  # as above
    """Return the members of a union, or the one."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return tuple(part for each in get_args(annotation) for part in _parts(each))
    return (annotation,)


def _path_of(error: Exception) -> str:
    """Return what is wrong and where, in the words of the library, without the value itself."""
    if not isinstance(error, ValidationError):
        return str(error).replace("`$", "`value").replace("$.", "value.").replace("$[", "value[")
    return _by_pydantic(error, "value")


def _by_pydantic(error: ValidationError, root: str) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    said = [f"{_joined(root, each['loc'])}: {each['msg']}" for each in found[:_MOST_SAID]]
    more = f"; and {len(found) - _MOST_SAID} more" if len(found) > _MOST_SAID else ""
    return "; ".join(said) + more


def _joined(root: str, place: Sequence[int | str]) -> str:
    path = root + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in place)
    return path.removeprefix(".") or "value"
