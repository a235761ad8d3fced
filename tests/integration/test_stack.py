import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from dovecote.devstack import Stack
from dovecote.devstack.errors import ServerFailed, ServerNotRunning
from dovecote.devstack.kafka.class_archive import ClassArchive
from dovecote.devstack.kafka.jars import kafka_broker_jars
from dovecote.devstack.kafka.java import java
from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.postgres.postgres import Postgres
from dovecote.devstack.processes import Process
from dovecote.devstack.server import Server
from tests.support.fix_stack import MakeTopic, new_topics
from tests.support.waiting import consume, patient, until


def test_the_database_is_new_and_logical_replication_is_on(database: str) -> None:
    with psycopg.connect(database) as conn:
        assert conn.execute("SHOW wal_level").fetchone() == ("logical",)
        assert conn.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert conn.execute("SHOW max_connections").fetchone() == ("200",)
        collation = conn.execute(
            "SELECT datcollate FROM pg_database WHERE datname = current_database()"
        )
        assert collation.fetchone() == ("C",)
        assert conn.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone() == (0,)


def test_nobody_connects_without_the_password(stack: Stack) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stack.postgres.dsn, password="guessed")  # noqa: S106  # it is wrong


def test_a_record_that_was_sent_is_read_back(stack: Stack, topic: MakeTopic) -> None:
    name = topic(2, cleanup_policy="compact")
    send(stack, name, partition=1)

    [record] = consume(stack.kafka.bootstrap, name)

    assert (record.partition(), record.key(), record.value()) == (1, b"key", b"value")


def test_a_topic_that_was_not_made_is_an_error(stack: Stack) -> None:
    with pytest.raises(KafkaException, match="Unknown topic"):
        consume(stack.kafka.bootstrap, "misspelt")


def test_a_broker_that_was_stopped_leaves_its_classes_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in kafka_broker_jars().glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    if not ClassArchive(java(), jars).is_wanted:
        pytest.skip("this Java has no archive of its own classes, and makes none of others")
    monkeypatch.setattr("dovecote.devstack.kafka.kafka.kafka_broker_jars", lambda *_: jars)

    def used(name: str, end: str) -> list[str]:
        """Return our archives that a broker has in its memory."""
        broker = Kafka(tmp_path / name)
        broker.start()
        maps = {each.path for each in psutil.Process(broker.pid).memory_maps()}
        getattr(broker, end)()
        assert not (tmp_path / name / "classes.jsa").exists()
        return [path for path in maps if Path(path).parent == jars and path.endswith(".jsa")]

    assert used("killed", "kill") == []
    assert list(jars.glob("*.jsa")) == []

    def is_left() -> bool:
        with Stack():
            """The broker is stopped, not killed, only for the archive that it leaves."""
        return bool(list(jars.glob("*.jsa")))

    # On a busy machine an end takes longer than a broker has for it, and then it leaves none.
    until(is_left, within=60, what="an archive of a broker that was stopped")
    [archive] = jars.glob("*.jsa")
    assert used("next", "stop") == [str(archive)]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_database_that_was_ended_comes_back_at_its_address_with_its_data(
    module_stack: Stack, how: str
) -> None:
    server = module_stack.postgres
    before = server.dsn
    with psycopg.connect(before) as conn:
        conn.execute("DROP TABLE IF EXISTS kept")
        conn.execute("CREATE TABLE kept AS SELECT 1 AS one")

    end_and_start(server, how)

    assert server.dsn == before
    with psycopg.connect(server.dsn) as conn:
        assert conn.execute("SELECT one FROM kept").fetchone() == (1,)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_broker_that_was_ended_comes_back_at_its_address_with_its_records(
    module_stack: Stack, how: str
) -> None:
    server = module_stack.kafka
    before = server.bootstrap
    with new_topics(module_stack) as topic:
        name = topic()
        send(module_stack, name)

        end_and_start(server, how)

        assert server.bootstrap == before
        assert len(consume(server.bootstrap, name)) == 1


def end_and_start(server: Server, how: str) -> None:
    left = everything_of(server)
    {"kill": server.kill, "stop": server.stop}[how]()
    assert not server.running
    assert not [process for process in left if process.running]
    with pytest.raises(ServerNotRunning, match="is not running; call start"):
        _ = server.pid
    server.start()


def test_a_server_that_somebody_else_killed_can_be_started_again(module_stack: Stack) -> None:
    server = module_stack.postgres
    psutil.Process(server.pid).send_signal(signal.SIGKILL)
    until(lambda: not server.running, within=10, what="it is gone")

    server.start()

    with psycopg.connect(server.dsn) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_keeper_leaves_nothing_of_its_server(module_stack: Stack) -> None:
    for server in (module_stack.postgres, module_stack.kafka):
        left = everything_of(server)
        psutil.Process(server.keeper_pid).kill()
        for process in left:
            until(lambda: not process.running, within=20, what="it is gone")  # noqa: B023  # called at once
        assert not server.running
        server.start()


def test_a_paused_database_answers_nobody_and_goes_on_with_open_connections(
    module_stack: Stack,
) -> None:
    server = module_stack.postgres
    with closing(psycopg.connect(server.dsn, autocommit=True)) as conn:
        server.pause()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn, connect_timeout=2)
        server.resume()
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_paused_broker_answers_nobody_and_goes_on(module_stack: Stack) -> None:
    server = module_stack.kafka
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    server.pause()
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    server.resume()
    assert admin.list_topics(timeout=patient(10)).brokers


def test_starting_a_server_that_runs_changes_nothing(module_stack: Stack) -> None:
    pid = module_stack.postgres.pid
    module_stack.postgres.start()
    assert module_stack.postgres.pid == pid


def test_a_server_that_does_not_start_is_an_error_that_quotes_its_log(
    unstarted: Callable[..., Postgres],
) -> None:
    server = unstarted(settings={"max_connections": "none"})

    with pytest.raises(ServerFailed) as caught:
        server.start()

    assert "Postgres ended while it was starting. The end of its log, " in str(caught.value)
    assert 'invalid value for parameter "max_connections": "none"' in str(caught.value)
    assert not server.running


def test_a_server_that_is_not_ready_in_time_is_an_error_and_is_ended(
    unstarted: Callable[..., Postgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = unstarted()
    monkeypatch.setattr(server, "_probe", lambda: "no answer to the probe")
    server.start_seconds = 0.5

    with pytest.raises(ServerFailed, match=r"does not answer \(no answer to the probe\)"):
        server.start()

    assert not server.running


@pytest.fixture
def unstarted(stack: Stack) -> Any:
    """Yields a Postgres that is not started, beside the shared stack's servers."""

    def make(**options: Any) -> Postgres:
        return Postgres(stack.directory / "unstarted", fsync=False, **options)

    return make


def send(stack: Stack, topic: str, *, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    producer.produce(topic, b"value", b"key", partition=partition)
    assert producer.flush(patient(20)) == 0


def everything_of(server: Server) -> list[Process]:
    """Return the server's processes, its children's and its keeper."""
    kept = psutil.Process(server.keeper_pid)
    pids = [kept.pid, *(child.pid for child in kept.children(recursive=True))]
    return [process for pid in pids if (process := Process.of(pid)) is not None]
