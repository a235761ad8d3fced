"""A value is exactly what the serialiser of a schema registry makes of it."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import SerializationError, StringSerializer
from google.protobuf.timestamp_pb2 import Timestamp

from outbox import Event
from outbox.envelope import encode
from outbox.schema_registry import serialized, serialized_async
from tests.support.registered import AVRO, GUID, JSON_SCHEMA, VALUE, Registry

# 42 and the length 6, each doubled like Avro's integers, and the text.
AVRO_VALUE = b"\x54\x0cplaced"
FRAME = b"\x00\x00\x00\x03\xe8"


@pytest.fixture
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def event(value: object, **fields: Any) -> Event:
    return Event(topic="orders", type="OrderPlaced", key="order-42", value=value, **fields)


def test_avro_is_framed_with_the_id_of_its_schema(
    registry: Registry, client: SchemaRegistryClient
) -> None:
    given = event(VALUE, headers=[("tenant", "a")])
    made = serialized(given, AvroSerializer(client, json.dumps(AVRO)))
    assert made.value == FRAME + AVRO_VALUE
    assert made.media_type() == "application/vnd.confluent.avro"
    assert (made.id, made.time, made.key, made.headers) == (
        given.id,
        given.time,
        given.key,
        given.headers,
    )
    ((path, asked),) = registry.registered
    assert path == "/subjects/orders-value/versions"
    assert json.loads(asked["schema"]) == AVRO


def test_json_is_framed_and_is_not_called_json(client: SchemaRegistryClient) -> None:
    made = serialized(event(VALUE), JSONSerializer(json.dumps(JSON_SCHEMA), client))
    assert isinstance(made.value, bytes)
    assert made.value[:5] == FRAME
    assert json.loads(made.value[5:]) == VALUE
    assert made.media_type() == "application/vnd.confluent.json"


def test_protobuf_is_framed_with_the_place_of_its_message(client: SchemaRegistryClient) -> None:
    serializer = ProtobufSerializer(Timestamp, client, {"use.deprecated.format": False})
    made = serialized(event(Timestamp(seconds=42)), serializer)
    # The first message of its file, then field 1 = 42.
    assert made.value == FRAME + b"\x00" + b"\x08\x2a"
    assert made.media_type() == "application/vnd.confluent.protobuf"


def test_a_schema_in_a_header_leaves_the_value_bare(client: SchemaRegistryClient) -> None:
    serializer = AvroSerializer(
        client, json.dumps(AVRO), conf={"schema.id.serializer": header_schema_id_serializer}
    )
    made = serialized(event(VALUE, headers=[("tenant", "a")]), serializer)
    assert made.value == AVRO_VALUE
    assert made.media_type() == "application/avro"
    (tenant, (name, guid)) = list(made.headers)
    assert tenant == ("tenant", b"a")
    assert name == "__value_schema_id"
    assert guid == b"\x01" + bytes.fromhex(GUID.replace("-", ""))


def test_the_async_serialiser_makes_the_same(registry: Registry) -> None:
    async def made() -> Event:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            serializer = await AsyncAvroSerializer(client, json.dumps(AVRO))
            with pytest.raises(TypeError, match="AsyncAvroSerializer has to be awaited"):
                serialized(event(VALUE), serializer)
            assert await serialized_async(tombstone, serializer) is tombstone
            return await serialized_async(event(VALUE), serializer)

    tombstone = event(None)
    found = asyncio.run(made())
    assert found.value == FRAME + AVRO_VALUE
    assert found.media_type() == "application/vnd.confluent.avro"


def test_a_registry_that_is_none_will_do_in_tests() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    made = serialized(event(VALUE), AvroSerializer(client, json.dumps(AVRO)))
    assert made.value == b"\x00\x00\x00\x00\x01" + AVRO_VALUE


def test_a_tombstone_stays_one(client: SchemaRegistryClient, registry: Registry) -> None:
    given = event(None)
    assert serialized(given, AvroSerializer(client, json.dumps(AVRO))) is given
    assert registry.registered == []


def test_a_content_type_of_the_events_own_stays(client: SchemaRegistryClient) -> None:
    given = event(VALUE, content_type="application/x-order")
    made = serialized(given, AvroSerializer(client, json.dumps(AVRO)))
    assert made.media_type() == "application/x-order"


def test_a_serialiser_of_another_kind_gives_bytes_of_no_known_type() -> None:
    made = serialized(event("text"), StringSerializer("utf_8"))
    assert (made.value, made.media_type()) == (b"text", "application/octet-stream")


def test_a_value_that_its_schema_does_not_fit_is_the_librarys_error(
    client: SchemaRegistryClient,
) -> None:
    with pytest.raises(SerializationError, match="'order' is a required property"):
        serialized(event({"state": "x"}), JSONSerializer(json.dumps(JSON_SCHEMA), client))
    with pytest.raises(TypeError, match="on field order"):
        serialized(event({"order": "x"}), AvroSerializer(client, json.dumps(AVRO)))


def test_the_record_says_what_its_value_is(client: SchemaRegistryClient) -> None:
    made = serialized(event(VALUE), AvroSerializer(client, json.dumps(AVRO)))
    _, value, headers = encode(made)
    assert value == FRAME + AVRO_VALUE
    assert ("content-type", b"application/vnd.confluent.avro") in headers
