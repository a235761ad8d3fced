"""Choose the decoder of a consumer's values: ours, or a schema registry's deserializer."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dedup.rules.policies.decode import DECODERS, Undecodable, as_raw, with_value
from dedup.rules.record import Decode
from dedup.settings.consumer import ConsumerSettings
from outbox import envelope
from outbox.errors import BadSettings
from outbox.event import Event


def decoder(settings: ConsumerSettings) -> Decode:
    """
    Return the decoder that `settings` choose.

    Raises:
        BadSettings: there is no such message class, or the registry's client cannot be made.
    """
    match settings.value:
        case "json" | "raw":
            return DECODERS[settings.value]
        case "avro":
            return deserialized(_library("avro", "AvroDeserializer")(_registry(settings)))
        case "json_schema":
            made = _library("json_schema", "JSONDeserializer")
            return deserialized(made(None, schema_registry_client=_registry(settings)))
        case "protobuf":
            made = _library("protobuf", "ProtobufDeserializer")
            message = _message(settings.message or "")
            return deserialized(
                made(message, {"use.deprecated.format": False}, _registry(settings))
            )


def deserialized(deserializer: Callable[[Any, Any], Any]) -> Decode:
    """Return the decoder of events with values from `deserializer`; a tombstone is None."""
    library = import_module("confluent_kafka.serialization")
    context, field = library.SerializationContext, library.MessageField.VALUE

    def decode(record: envelope.Record) -> Event:
        if record.value is None:
            return as_raw(record)
        try:
            value = deserializer(record.value, context(record.topic, field, list(record.headers)))
        except Exception as error:
            # Any exception may come: the registry's, the library's, or the format's own.
            where = f"{record.topic}/{record.partition}/{record.offset}"
            msg = f"the value of {where} cannot be deserialised: {type(error).__name__}: {error}"
            raise Undecodable(msg) from error
        return with_value(record, value)

    return decode


def _registry(settings: ConsumerSettings) -> Any:  # noqa: ANN401  # the client's own class
    try:
        library = import_module("confluent_kafka.schema_registry")
        return library.SchemaRegistryClient(dict(settings.registry))
    except (ImportError, ValueError, TypeError) as error:
        msg = f"registry: {error} (pip install 'dovecote[schema-registry]' brings its client)"
        raise BadSettings(msg) from error


def _library(module: str, name: str) -> Any:  # noqa: ANN401  # a class of an optional library
    try:
        return getattr(import_module(f"confluent_kafka.schema_registry.{module}"), name)
    except ImportError as error:
        msg = f"value: {error}; pip install 'dovecote[schema-registry]'"
        raise BadSettings(msg) from error


def _message(reference: str) -> Any:  # noqa: ANN401  # a class that Protobuf made
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"message {reference!r}: {error}"
        raise BadSettings(msg) from error
