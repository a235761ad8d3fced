"""Events that were read from the table survive a crash of the server."""

import psycopg
import pytest
from psycopg import Connection

from dovecote.devstack.postgres.postgres import Postgres
from outbox.schema import capture as outbox_capture
from outbox.schema.capture import use_table, use_wal
from relay.postgres.connect import connect
from relay.rules.places.progress import Cursor
from tests.support.capturing import LARGE, capturing, database_of, read
from tests.support.relaying import installed

ROUND = (
    "INSERT INTO outbox.events (topic, key, value, type, id, source, time)"
    " SELECT 't', 'key', n::text::bytea, 'T', gen_random_uuid(), '/t', now() FROM {}"
)


WAYS_TO_COMMIT_LAZILY = {
    "on by the outbox": ["SELECT outbox.append('t', 'key', n::text::bytea, 'T') FROM {}"],
    "off by the end of a function": ["SELECT lazily(n) FROM {}"],
    "off by a function that turns it on": ["SELECT eagerly(n) FROM {}"],
    "off behind the write": [
        "SELECT outbox.append('t', 'key', n::text::bytea, 'T') FROM {}",
        "SET LOCAL synchronous_commit = off",
    ],
    "off round the outbox": [ROUND],
}


@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize("way", WAYS_TO_COMMIT_LAZILY)
def test_an_event_that_was_read_survives_a_crash_whatever_the_session_says(
    lazy: Postgres, way: str, count: int
) -> None:
    dsn = installed(database_of(lazy))
    with psycopg.connect(dsn) as conn:
        appends = "PERFORM outbox.append('t', 'key', n::text::bytea, 'T');"
        for function, value in (("lazily", "off"), ("eagerly", "on")):
            conn.execute(
                f"CREATE FUNCTION {function}(n int) RETURNS void LANGUAGE plpgsql"
                f" SET synchronous_commit = {value} AS $$ BEGIN {appends} END $$".encode()
            )
        conn.execute("SET LOCAL synchronous_commit = on")
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        for statement in WAYS_TO_COMMIT_LAZILY[way]:
            conn.execute(statement.format(f"generate_series(1, {count}) AS n").encode())
        conn.commit()
        assert read(capture, Cursor())[0] == [*range(1, count + 1)]
    lazy.kill()
    lazy.start()
    with capturing(dsn) as capture:
        assert read(capture, Cursor())[0] == [*range(1, count + 1)]


def test_what_relays_and_operators_write_survives_a_crash_whatever_is_usual_there(
    lazy: Postgres,
) -> None:
    dsn = installed(database_of(lazy))
    with connect(dsn, purpose="test") as conn:
        conn.execute("INSERT INTO public.written (id) VALUES ('1')")
    lazy.kill()
    lazy.start()
    use_wal(dsn, "outbox")
    use_table(dsn, "outbox")
    lazy.kill()
    lazy.start()
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT id FROM written").fetchall() == [("1",)]
        assert outbox_capture.installed(conn, "outbox").state == "leaving"


def test_what_is_handed_over_before_it_is_on_disk_says_so(lazy: Postgres) -> None:
    dsn = installed(database_of(lazy))

    def commit_lazily(conn: Connection, number: int) -> None:
        conn.execute(ROUND.format(f"generate_series({number}, {number}) AS n").encode())
        conn.commit()

    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        commit_lazily(conn, 1)
        batches = capture.batches(Cursor())
        batch = next(batches)
        assert batch.is_kept is not None
        assert not batch.is_kept(0)
        assert list(batches) == []
        assert batch.is_kept(0)
        commit_lazily(conn, 2)
        batches = capture.batches(batch.cursor)
        abandoned = next(batches)
        assert abandoned.is_kept is not None
        del batches
        assert not abandoned.is_kept(10), "nobody will find out"
