"""The examples in the documents do what the documents say."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.devstack import Stack
from outbox import Event, Limits, schema, write
from outbox.envelope import encode
from relay.errors import Refused
from relay.health import Health
from relay.kafka.properties import producer_properties
from relay.metrics import Metrics
from relay.operating.status import status
from relay.postgres.capture.table import TableCapture
from relay.rules.places.progress import Cursor
from relay.settings import RelaySettings
from relay.standby import Standby
from tests.support.documents import ROOT, Command, blocks, code_spans, commands, table
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import DSN, installed, relays, settings
from tests.support.topics import alter_topic, make_topic
from tests.support.waiting import patient, until

README, DOCS = ROOT / "README.md", ROOT / "docs"
SHOP = "CREATE TABLE orders (id int PRIMARY KEY, state text); INSERT INTO orders VALUES (42)"


ROLES = ["shop_writer", "shop_relay"]
"""The roles that commands in the documents name."""


@pytest.fixture
def shop(database: str) -> str:
    """A database with an outbox, and the table of orders from the examples."""
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute(SHOP)
    return database


@pytest.fixture
def roles(stack: Stack) -> Iterator[str]:
    """The prefix of this test's roles, in place of `shop_`; they are dropped at the end."""
    prefix = f"shop_{uuid4().hex[:12]}_"
    yield prefix
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as conn:
        for (name,) in conn.execute(
            "SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s) OR rolname = ANY (%s)",
            [prefix, ROLES],
        ).fetchall():
            conn.execute(f'DROP ROLE "{name}"'.encode())


@pytest.fixture
def database(roles: str, database: str) -> str:
    """The database, which is dropped before the roles that have rights in it."""
    assert roles
    return database


def run_python(document: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Run the unnamed Python examples of `document`, one after the other, with `names`."""
    for block in blocks(document, "python"):
        if not block.name:
            exec(compile(block.text, document.name, "exec"), names)  # noqa: S102  # our own document
    return names


def run_sql(document: Path, dsn: str, roles: str) -> None:
    """Run the SQL examples of `document`, with roles of this test's own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for block in blocks(document, "sql"):
            conn.execute(block.text.replace("shop_", roles).encode())


def written(dsn: str) -> list[tuple[str, str, bytes | None]]:
    """Return topic, type and key of the events in the outbox."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "SELECT topic, type, key FROM outbox.events ORDER BY position"
        ).fetchall()


def test_the_readme_writes_an_event(shop: str) -> None:
    run_python(README, {"dsn": shop})
    assert written(shop) == [("orders", "OrderPlaced", b"order-42")]
    with psycopg.connect(shop) as conn:
        assert conn.execute("SELECT state FROM orders").fetchone() == ("placed",)


def test_the_python_of_the_producer_does_what_it_says(shop: str, stack: Stack) -> None:
    run_python(DOCS / "producer.md", {"dsn": shop, "bootstrap": stack.kafka.bootstrap})
    # No relay runs, so everything waits in the outbox.
    assert [row[1] for row in written(shop)] == ["OrderSeen"] * 103


def test_the_python_of_events_does_what_it_says(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_python(DOCS / "events.md", {"dsn": shop})
    assert [key for _, _, key in written(shop)] == [
        *(f"order-{n}".encode() for n in range(42, 46)),
        b"p-1",
    ]
    printed = capsys.readouterr().out.splitlines()
    text = (DOCS / "events.md").read_text()
    shown = [line.rstrip("…") for line in re.findall(r"print\(error\)  # (.*)", text)]
    assert len(shown) == len(printed) == 2
    for real, expected in zip(printed, shown, strict=True):
        assert real.startswith(expected)

    async def place() -> None:
        async with await psycopg.AsyncConnection.connect(shop) as conn:
            await names["place"](conn, 42)

    asyncio.run(place())
    assert written(shop)[-1] == ("orders", "OrderPlaced", b"order-42")


def test_the_sql_of_events_writes_with_the_rights_it_names(shop: str, roles: str) -> None:
    run_sql(DOCS / "events.md", shop, roles)
    assert [(type_, key) for _, type_, key in written(shop)] == [
        ("OrderPlaced", b"order-42"),
        ("OrderPlaced", b"order-1"),
        ("OrderForgotten", b"order-2"),
    ]
    with psycopg.connect(shop) as conn:
        conn.execute(f'SET ROLE "{roles}service"'.encode())
        conn.execute("SELECT outbox.append('orders', NULL, NULL, 'OrderPlaced')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("SELECT FROM outbox.events")


def test_the_parameters_of_append_are_those_of_the_table(shop: str) -> None:
    with psycopg.connect(shop) as conn:
        row = conn.execute("SELECT pg_get_function_arguments('outbox.append'::regproc)").fetchone()
    assert row is not None
    shown = [
        (name.strip("`"), type_.strip("`"), default(told))
        for name, type_, told in table(DOCS / "events.md", "Other languages")
    ]
    assert shown == [parameter(text) for text in row[0].split(", ")]


def default(told: str) -> str | None:
    return None if told.startswith("required") else code_spans(told)[0]


def parameter(text: str) -> tuple[str, str, str | None]:
    declared, _, value = text.partition(" DEFAULT ")
    name, type_ = declared.split(" ", 1)
    return (
        name.strip('"'),
        type_.replace("timestamp with time zone", "timestamptz"),
        value.partition("::")[0] or None,
    )


def test_an_event_as_large_as_the_limits_allow_fits_client_and_broker(
    stack: Stack, topic: MakeTopic
) -> None:
    limits = Limits()
    event = Event(
        topic=topic(),
        type="T",
        key=os.urandom(limits.key),
        value=os.urandom(limits.value),
        headers=[("h", os.urandom(limits.headers - len("Tdovecoteapplication/octet-streamh")))],
    )
    failed: list[Any] = []
    properties = producer_properties(
        {"bootstrap.servers": stack.kafka.bootstrap},
        mode="at_least_once",
        transactional_id="",
        transaction_timeout=30,
    )
    producer = Producer({**properties, "on_delivery": lambda error, _: failed.append(error)})
    key, value, headers = encode(event)
    producer.produce(event.topic, value, key, headers=list(headers))
    assert producer.flush(patient(30)) == 0
    assert not failed


def test_the_schema_is_installed_as_its_document_says(database: str, roles: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        schema.install(conn)
        run_python(DOCS / "schema.md", {"dsn": database})
        assert schema.version(conn) == schema.version(conn, "shop_outbox") > 0
        run_sql(DOCS / "schema.md", database, roles)
        named = schema.Roles([f"{roles}writer"], [f"{roles}relay"])
        schema.install(conn, roles=named)
        require_rights(conn, roles)


def require_rights(conn: psycopg.Connection, roles: str) -> None:
    """Write as the service and read as the relay, each with its granted rights."""
    name = conn.info.dbname
    conn.execute(f"ALTER ROLE \"{roles}relay\" LOGIN PASSWORD 'x'".encode())
    conn.execute(f'SET ROLE "{roles}writer"'.encode())
    conn.execute("SELECT outbox.append('orders', NULL, NULL, 'OrderPlaced')")
    conn.execute("RESET ROLE")
    dsn = make_conninfo(conn.info.dsn, user=f"{roles}relay", password="x", dbname=name)  # noqa: S106  # of this test's role
    capture = TableCapture(dsn, "outbox", batch_rows=10, batch_bytes=1_000)
    try:
        assert capture.origin().database > 0
        assert sum(len(batch.rows) for batch in capture.batches(Cursor())) == 1
    finally:
        capture.close()


def test_a_role_without_the_rights_is_told_which_it_needs(
    stack: Stack, shop: str, roles: str
) -> None:
    with psycopg.connect(shop) as conn:
        conn.execute(f"CREATE ROLE \"{roles}relay\" LOGIN PASSWORD 'x'".encode())
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("PGPASSWORD", "x")
        parameters = conninfo_to_dict(shop) | {"user": f"{roles}relay"}
        del parameters["password"]
        settings = RelaySettings.model_validate(
            {
                "name": f"docs-{uuid4().hex}",
                "dsn": make_conninfo("", **parameters),
                "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
            }
        )
        relay = Standby(settings, health=Health(), metrics=[Metrics(settings.name)])
        for asked in (lambda: relay.run(threading.Event()), lambda: status(settings)):
            wanted = rf"run `dovecote init outbox --relay-role {roles}relay` as its owner"
            with pytest.raises(Refused, match=wanted):
                asked()


def test_anybody_who_may_create_a_schema_may_install_it(database: str, roles: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(f'CREATE ROLE "{roles}owner"'.encode())
        conn.execute(f'GRANT CREATE ON DATABASE "{conn.info.dbname}" TO "{roles}owner"'.encode())
        conn.execute(f'SET ROLE "{roles}owner"'.encode())
        assert schema.install(conn)
        conn.execute("SELECT outbox.append('orders', NULL, NULL, 'OrderPlaced')")


@pytest.fixture
def environment(stack: Stack, database: str) -> dict[str, str]:
    """The environment of somebody whose servers run, and who has created nothing yet."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "DOVECOTE_DSN": database,
        "BOOTSTRAP": stack.kafka.bootstrap,
        "DOVECOTE_RELAY_NAME": f"docs-{uuid4().hex}",  # other tests share the Kafka
    }


@pytest.fixture
def shop_orders(stack: Stack) -> Iterator[None]:
    """Deletes the topic that the example creates."""
    yield
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    for deleted in admin.delete_topics(["shop-orders"]).values():
        deleted.result(patient(30))


@pytest.mark.usefixtures("shop_orders")
def test_getting_started_gets_started(environment: dict[str, str], tmp_path: Path) -> None:
    document = DOCS / "getting-started.md"
    for block in blocks(document):
        if block.name:
            (tmp_path / block.name).write_text(block.text)
    shown = list(filter(is_run, commands(document)))
    # People who try it run the service again.
    shown += [command for command in shown if command.line == "python shop.py"]
    said = run_script(shown, environment, tmp_path)
    assert len(said) >= 8
    for command, output in said:
        # The order in which different keys are handled is not defined.
        lines = sorted(output.splitlines(keepends=True)) if " consume " in command.line else output
        assert re.fullmatch(pattern(command.output), "".join(lines)), (command, output)


def is_run(command: Command) -> bool:
    """Return whether a command is one to run here: the fixtures have made its surroundings."""
    made = ("make ", ". .venv", "export DOVECOTE_DSN=", "export BOOTSTRAP=", "dovecote stack ")
    return not command.line.startswith(made)


def pattern(shown: str) -> str:
    return ".*".join(re.escape(part) for part in shown.split("…"))


def run_script(
    shown: list[Command], environment: dict[str, str], folder: Path
) -> list[tuple[Command, str]]:
    """Run the commands in one shell; return the standard output of each."""
    bash = shutil.which("bash")
    assert bash is not None
    lines = ["set -m"]
    for number, command in enumerate(shown):
        lines += [f"exec > out.{number}", command.line]
        if command.line.endswith("&"):
            count = command.output.count("\n")
            said = f'[ "$(wc -l < out.{number})" -ge {count} ]'
            most = round(patient(300))
            lines.append(f"for _ in {{1..{most}}}; do {said} && break || sleep 0.1; done")
    done = subprocess.run(
        [bash, "-e", "-c", "\n".join([*lines, "wait"])],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=patient(90),
    )
    assert done.returncode == 0, done.stderr
    return [
        (command, (folder / f"out.{number}").read_text()) for number, command in enumerate(shown)
    ]


def test_the_commands_of_the_schema_print_what_is_shown(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with psycopg.connect(environment["DOVECOTE_DSN"]) as conn:
        for role in ROLES:
            conn.execute(f"CREATE ROLE {role}".encode())
    shown = list(commands(DOCS / "schema.md"))
    for command, output in run_script(shown, environment, tmp_path):
        assert re.fullmatch(pattern(command.output), output), (command, output)
    printed = {path.name: path.read_text() for path in tmp_path.glob("*.sql")}
    assert printed["0042_outbox.sql"] == schema.script()
    assert printed["0043_shop_outbox.sql"] == schema.script("shop_outbox")
    assert printed["0051_outbox.sql"] == schema.script(since=1)
    writers = schema.Roles(writers=["shop_writer"])
    assert printed["0052_roles.sql"] == schema.script(since=18, roles=writers)


@pytest.mark.usefixtures("shop_orders")
def test_parked_events_are_seen_requeued_and_dropped_as_shown(
    stack: Stack, environment: dict[str, str], tmp_path: Path
) -> None:
    document = DOCS / "parked.md"
    dsn, bootstrap = environment["DOVECOTE_DSN"], stack.kafka.bootstrap
    with relays(tmp_path, installed(dsn), bootstrap) as fleet:
        config = settings(bootstrap, name=fleet.name)
        (tmp_path / "relay.toml").write_text(config, encoding="utf-8")
        known = environment | {DSN: dsn, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        del known["DOVECOTE_RELAY_NAME"]
        fleet.active(kafka={"compression.type": "none"})
        shown = list(commands(document))
        make_topic(bootstrap, "shop-orders", max_message_bytes="3000")
        park_orders(dsn)
        run_as_shown(shown[:2], known, tmp_path)
        alter_topic(bootstrap, "shop-orders", max_message_bytes="9000")
        run_as_shown(shown[2:3], known, tmp_path)
        alter_topic(bootstrap, "shop-orders", max_message_bytes="3000")
        park_orders(dsn)
        run_as_shown(shown[3:], known, tmp_path)


def park_orders(dsn: str) -> None:
    """Commit the events that the document lists."""
    first, second = re.findall(r"^0190\S+", (DOCS / "parked.md").read_text(), re.MULTILINE)
    order: dict[str, Any] = {"topic": "shop-orders", "key": "order-42"}
    with psycopg.connect(dsn) as conn:
        write(
            conn,
            Event(id=first, type="OrderPlaced", value=" " * 5_000, **order),
            Event(id=second, type="OrderPaid", value="", **order),
        )
        conn.commit()

        def both() -> bool:
            row = conn.execute("SELECT count(*) FROM outbox.parked").fetchone()
            conn.rollback()
            return row == (2,)

        until(both, within=30, what="both are parked")


def run_as_shown(shown: list[Command], environment: dict[str, str], folder: Path) -> None:
    for command, output in run_script(shown, environment, folder):
        assert re.fullmatch(pattern(command.output), output, re.DOTALL), (command, output)
