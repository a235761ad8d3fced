import psycopg
from confluent_kafka import Producer

from devstack import Stack
from tests.fix_stack import MakeTopic
from tests.waiting import consume


def test_the_database_is_new_and_logical_replication_is_on(database: str) -> None:
    with psycopg.connect(database) as conn:
        assert conn.execute("SHOW wal_level").fetchone() == ("logical",)
        assert conn.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert conn.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone() == (0,)


def test_a_record_that_was_sent_is_read_back(stack: Stack, topic: MakeTopic) -> None:
    name = topic(2, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    producer.produce(name, b"value", b"key", partition=1)
    producer.flush(10)

    [record] = consume(stack.kafka.bootstrap, name)

    assert (record.partition(), record.key(), record.value()) == (1, b"key", b"value")
