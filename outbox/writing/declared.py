"""Declare what the events of a class have in common: an object of it is then enough to write."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, TypeVar

from outbox.contracts import gate
from outbox.errors import InvalidEvent
from outbox.event import Event, HeaderValue
from outbox.values import as_key

_MARK = "__dovecote_event__"
_OF_RECORD = "ce_dataversion"

T = TypeVar("T", bound=type)


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a class by `event`."""

    type: str
    """The events' type: `OrderPlaced`."""
    topic: str
    key: str | Callable[[Any], object] | None
    source: str
    subject: str | None
    version: int | None
    dataschema: str | None
    headers: tuple[tuple[str, HeaderValue], ...]
    """The headers that say `version` and `dataschema`."""


def event(
    type_: str,
    /,
    *,
    topic: str,
    key: str | Callable[[Any], object] | None = None,
    source: str = "dovecote",
    subject: str | None = None,
    version: int | None = None,
    dataschema: str | None = None,
) -> Callable[[T], T]:
    """
    Declare a class of values: `write(conn, OrderPlaced(…))` then makes the event.

    `key` and `subject` name a field of the class, with dots for a field of a field; `key` may also
    be a function of the object. `version` travels as the CloudEvents extension `dataversion`, as
    Azure Event Grid calls it, and `dataschema` as the attribute of CloudEvents. The class stays as
    it is; a class that inherits from it is declared by itself.

    Raises:
        InvalidEvent: no event could be made: a bad topic, an empty type, or no such field.
    """
    headers = _headers(version, dataschema)
    declared = Declared(type_, topic, key, source, subject, version, dataschema, headers)
    Event(topic=topic, type=type_, source=source, headers=headers)  # raises here, and not at write
    is_number = isinstance(version, int) and not isinstance(version, bool)
    if version is not None and (not is_number or version < 0):
        msg = f"version of event {type_!r} must be a number from 0, not {version!r}"
        raise InvalidEvent(msg)

    def mark(kind: T) -> T:
        for what, name in (("key", key), ("subject", subject)):
            known = _fields(kind)
            if isinstance(name, str) and known and name.partition(".")[0] not in known:
                msg = f"{kind.__name__} has no field {name!r}, which is to be the event's {what}"
                raise InvalidEvent(msg)
        setattr(kind, _MARK, declared)
        return kind

    return mark


def declared(kind: type) -> Declared | None:
    """Return what was said about a class itself; None: nothing, or only about its base."""
    found = kind.__dict__.get(_MARK)
    return found if isinstance(found, Declared) else None


def as_event(
    value: object,
    *,
    headers: Iterable[tuple[str, HeaderValue]] = (),
    **fields: Any,  # noqa: ANN401  # those of `Event`
) -> Event[Any]:
    """
    Return the event of an object whose class is declared; other fields of `Event` may be given.

    Raises:
        InvalidEvent: its class is not declared, or a field could never be published.
    """
    known = declared(type(value))
    if known is None:
        raise InvalidEvent(_undeclared(type(value)))
    subject = None
    if known.subject is not None:
        found = as_key(_member(value, known.subject), f"{type(value).__name__}.{known.subject}")
        subject = found.decode() if isinstance(found, bytes) else found
    given: dict[str, Any] = {
        "topic": known.topic,
        "type": known.type,
        "source": known.source,
        "key": _key(known, value),
        "subject": subject,
        "headers": (*known.headers, *headers),
    }
    return Event(value=value, **(given | fields if fields else given))


def to_event(given: object) -> Event[Any]:
    """
    Return an event as it is, and the event of an object whose class is declared.

    Raises:
        InvalidEvent: it is neither, or does not fit its contract, and contracts are enforced.
    """
    found = given if isinstance(given, Event) else as_event(given)
    if gate.check is not None:
        gate.check(found)
    return found


def _headers(version: int | None, dataschema: str | None) -> tuple[tuple[str, HeaderValue], ...]:
    found: list[tuple[str, HeaderValue]] = []
    if version is not None:
        found.append((_OF_RECORD, str(version)))
    if dataschema is not None:
        found.append(("ce_dataschema", dataschema))
    return tuple(found)


def _key(known: Declared, value: object) -> bytes | str | None:
    if known.key is None:
        return None
    if isinstance(known.key, str):
        found = _member(value, known.key)
        if found.__class__ is str:  # as nearly always
            return found
        return as_key(found, f"{type(value).__name__}.{known.key}")
    return as_key(known.key(value), f"the key of {type(value).__name__}")


def _member(value: object, path: str) -> object:
    found = value
    for name in path.split(".") if "." in path else (path,):
        try:
            found = found[name] if isinstance(found, Mapping) else getattr(found, name)
        except (AttributeError, KeyError):
            msg = f"{type(value).__name__} has no {path}, which is to be in the event"
            raise InvalidEvent(msg) from None
    return found


def _fields(kind: Any) -> set[str]:  # noqa: ANN401  # a class of any library
    """Return the names that objects of a class have; empty: nobody knows."""
    if is_dataclass(kind):
        found = set(kind.__dataclass_fields__)
    elif "__attrs_attrs__" in vars(kind):
        found = {each.name for each in kind.__attrs_attrs__}
    else:
        found = {
            *(getattr(kind, "model_fields", None) or ()),
            *(getattr(kind, "__struct_fields__", None) or ()),
        }
    return found | set(dir(kind)) if found else found


def _undeclared(kind: type) -> str:
    for base in kind.__mro__[1:]:
        if (known := declared(base)) is not None:
            return (
                f"{kind.__name__} is not declared itself, and {base.__name__} is an event of type "
                f"{known.type!r}: decorate {kind.__name__} with @event(…) too"
            )
    return (
        f"an event is an outbox.Event, or an object of a class with @event(…), not {kind.__name__}"
    )
