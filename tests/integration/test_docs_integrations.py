"""The examples of docs/integrations.md do what it says, with each library."""

import asyncio
from typing import Any

import psycopg
import pytest
import sqlalchemy
from alembic.migration import MigrationContext
from alembic.operations import Operations
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from django.conf import settings
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy.pool import NullPool

from outbox import schema
from tests.support.documents import ROOT, blocks, table
from tests.support.fix_django import django_database
from tests.support.writers import address, url

DOCUMENT = ROOT / "docs/integrations.md"
EXAMPLES = {block.name: block.text for block in blocks(DOCUMENT, "python")}


@pytest.fixture
def shop(database: str) -> str:
    """A database with an outbox, and the table of orders from the examples."""
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        conn.execute("INSERT INTO orders VALUES (42, 'new')")
    return database


def run(name: str, **names: Any) -> dict[str, Any]:
    exec(compile(EXAMPLES[name], f"{DOCUMENT.name}: {name}", "exec"), names)  # noqa: S102  # our own document
    return names


def require_placed(dsn: str) -> None:
    """Check that the order and its event have been committed."""
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT state FROM orders").fetchall() == [("placed",)]
        events = conn.execute("SELECT topic, key, type, value FROM outbox.events").fetchall()
    assert events == [("orders", b"order-42", "OrderPlaced", b'{"order":42}')]


def test_the_example_of_sqlalchemy_writes_an_event(shop: str) -> None:
    names = run("sqlalchemy", url=url(shop, "psycopg"), __name__="shop")
    names["engine"].dispose()
    require_placed(shop)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_the_async_example_of_sqlalchemy_writes_an_event(shop: str, driver: str) -> None:
    names = run("sqlalchemy-async", async_url=url(shop, driver))
    asyncio.run(names["place"](42))
    require_placed(shop)


def test_the_example_of_django_writes_an_event(shop: str) -> None:
    with django_database(shop):
        run("django")
    require_placed(shop)


def test_the_example_of_asyncpg_writes_an_event(shop: str) -> None:
    names = run("asyncpg", address=address(shop))
    asyncio.run(names["place"](42))
    require_placed(shop)


def test_the_app_for_django_is_the_one_that_tests_migrate_with(shop: str) -> None:
    with django_database(shop):
        assert run("django-settings")["INSTALLED_APPS"] == settings.INSTALLED_APPS


def test_the_examples_of_alembic_install_the_outbox_and_hide_it(database: str) -> None:
    engine = sqlalchemy.create_engine(url(database, "psycopg"), poolclass=NullPool)
    with engine.begin() as conn, Operations.context(MigrationContext.configure(conn)):
        names = run("alembic")
        names["upgrade"]()
        assert sqlalchemy.inspect(conn).has_table("events", schema="outbox")
    with psycopg.connect(database) as other:
        assert schema.version(other) == schema.migrations()[-1].version
    with engine.begin() as conn, Operations.context(MigrationContext.configure(conn)):
        names["downgrade"]()
    with psycopg.connect(database) as other:
        assert schema.version(other) == 0


def test_the_version_in_the_example_of_alembic_is_the_newest() -> None:
    assert f"install(version={schema.migrations()[-1].version})" in EXAMPLES["alembic"]


def test_the_hook_of_alembic_is_one_that_its_context_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("alembic.context.configure", given.update)
    run("alembic-env", connection=None, target_metadata=None)
    assert given["include_name"]("outbox", "schema", {}) is False
    assert given["include_name"]("shop", "schema", {}) is True


def test_the_example_of_opentelemetry_hands_the_trace_on(
    shop: str, spans: InMemorySpanExporter
) -> None:
    with psycopg.connect(shop) as conn:
        run("otel", conn=conn)
    span, around = spans.get_finished_spans()
    assert (span.name, around.name) == ("create orders", "place order")
    assert span.parent is not None
    assert around.context is not None
    assert span.parent.span_id == around.context.span_id
    assert span.context is not None
    with psycopg.connect(shop) as conn:
        stored = conn.execute("SELECT header_values FROM outbox.events").fetchall()
    assert f"{span.context.trace_id:032x}-{span.context.span_id:016x}" in stored[0][0][0].decode()


def test_the_example_of_a_schema_registry_writes_what_its_deserialiser_reads(shop: str) -> None:
    with psycopg.connect(shop) as conn:
        names = run("schema-registry", conn=conn, registry_url="mock://shop")
    with psycopg.connect(shop) as conn:
        query = "SELECT topic, key, value, content_type FROM outbox.events"
        (topic, key, value, media_type) = conn.execute(query).fetchall()[0]
        assert conn.execute("SELECT state FROM orders").fetchall() == [("placed",)]
    assert (topic, key, media_type) == ("orders", b"order-42", "application/vnd.confluent.avro")
    deserializer = AvroDeserializer(names["registry"])
    read = deserializer(value, SerializationContext(topic, MessageField.VALUE))
    assert read == {"order": 42}


def test_every_extra_of_the_table_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for row in table(DOCUMENT, "With your libraries"):
        if "[" in row[1]:
            assert f"\n{row[1].strip('`').partition('[')[2].rstrip(']')} = [" in text
