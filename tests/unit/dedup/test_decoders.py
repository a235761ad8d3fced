"""A consumer reads what a registry's serialisers wrote, and reports what it cannot read."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from dedup.decoders import decoder
from dedup.rules.policies.decode import Undecodable
from dedup.rules.record import Record, read_with
from dedup.settings.consumer import ConsumerSettings
from outbox import BadSettings, Event
from outbox.envelope import encode
from outbox.schema_registry import serialized
from tests.support.registered import AVRO, JSON_SCHEMA, VALUE, Registry


def settings(value: str, **more: Any) -> ConsumerSettings:
    kafka = {"bootstrap.servers": "b:9092"}
    return ConsumerSettings.model_validate(
        {"topics": ["orders"], "group": "g", "kafka": kafka, "value": value, **more}
    )


def record(event: Event, given: ConsumerSettings) -> Record:
    key, value, headers = encode(event)
    return read_with(decoder(given))("orders", 0, 7, 0, key, value, headers)


@pytest.mark.parametrize("value", ["avro", "json_schema"])
def test_a_value_is_what_the_serialiser_was_given(registry: Registry, value: str) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    make: Any = AvroSerializer if value == "avro" else JSONSerializer
    schema = AVRO if value == "avro" else JSON_SCHEMA
    serializer = (
        make(client, json.dumps(schema)) if value == "avro" else make(json.dumps(schema), client)
    )
    event = Event(topic="orders", key="k", type="OrderPlaced", value=VALUE)
    given = settings(value, registry={"url": registry.url})
    read = record(serialized(event, serializer), given).event
    assert (read.value, read.id, read.key) == (VALUE, event.id, "k")


def order_class() -> Any:
    """Return the class that protoc would make of `message Order { int32 order = 1; }`."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="order", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_a_protobuf_message_is_read_as_its_class(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_class()
    monkeypatch.setitem(sys.modules, "shop_pb2", SimpleNamespace(Order=order))
    client = SchemaRegistryClient({"url": registry.url})
    serializer = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    event = Event(topic="orders", type="OrderPlaced", value=order(order=42))
    given = settings("protobuf", registry={"url": registry.url}, message="shop_pb2:Order")
    assert record(serialized(event, serializer), given).event.value == order(order=42)


def test_what_the_registry_or_the_format_does_not_know_says_where_it_is(
    registry: Registry,
) -> None:
    given = settings("avro", registry={"url": registry.url})
    unframed = record(Event(topic="orders", type="T", value=b"plain"), given)
    with pytest.raises(Undecodable, match="value of orders/0/7 cannot be deserialised"):
        _ = unframed.event


def test_a_tombstone_stays_one(registry: Registry) -> None:
    given = settings("avro", registry={"url": registry.url})
    assert record(Event(topic="orders", type="T", value=None), given).event.value is None


def test_a_message_that_is_not_there_is_named() -> None:
    with pytest.raises(BadSettings, match="nowhere:Order"):
        decoder(settings("protobuf", registry={"url": "http://r"}, message="nowhere:Order"))
