"""Serialise events whose values a schema registry describes, before they are written."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from inspect import iscoroutine
from typing import Any, TypeAlias

from outbox.event import Event

Serializer: TypeAlias = Callable[[Any, Any], bytes | None]
"""`AvroSerializer`, `JSONSerializer` or `ProtobufSerializer` of confluent_kafka."""

AsyncSerializer: TypeAlias = Callable[[Any, Any], Awaitable[bytes | None]]
"""Their async forms."""

_FORMATS = {"AvroSerializer": "avro", "JSONSerializer": "json", "ProtobufSerializer": "protobuf"}


def serialized(event: Event, serializer: Serializer) -> Event:
    """
    Return `event` with the same id, and the bytes that `serializer` makes of its value.

    A tombstone stays one. Unless the event has a content type, it gets one that names the framing.
    By default the schema's id comes first in the value, and the type is
    `application/vnd.confluent.avro`. If the serializer puts the schema in a header, the event gets
    that header, and the type is `application/avro`.

    The serializer asks the registry the first time that it sees a schema: call it before rows are
    locked.

    Raises:
        TypeError: `serializer` has to be awaited.
    """
    if event.value is None:
        return event
    context = _context(event)
    value = serializer(event.value, context)
    if iscoroutine(value):
        value.close()
        msg = f"{type(serializer).__name__} has to be awaited: `await serialized_async(event, …)`"
        raise TypeError(msg)
    return _with(event, value, context.headers, serializer)


async def serialized_async(event: Event, serializer: AsyncSerializer) -> Event:
    """As `serialized`, with a serializer that has to be awaited."""
    if event.value is None:
        return event
    context = _context(event)
    value = await serializer(event.value, context)
    return _with(event, value, context.headers, serializer)


def _context(event: Event) -> Any:  # noqa: ANN401  # the client's own class, which is not imported
    # By name: a caller with a serializer has the client; nobody else has to load it.
    library = import_module("confluent_kafka.serialization")
    field = library.MessageField.VALUE
    return library.SerializationContext(event.topic, field, list(event.headers))


def _with(
    event: Event,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    serializer: object,
) -> Event:
    media_type = event.content_type
    if media_type is None and (kind := _format(serializer)):
        # A serializer that adds a header has put the schema there, and left the value unframed.
        bare = len(headers) > len(list(event.headers))
        media_type = f"application/{kind}" if bare else f"application/vnd.confluent.{kind}"
    return replace(event, value=value, headers=headers, content_type=media_type)


def _format(serializer: object) -> str | None:
    names = [kind.__name__.removeprefix("Async") for kind in type(serializer).__mro__]
    return next((_FORMATS[name] for name in names if name in _FORMATS), None)
