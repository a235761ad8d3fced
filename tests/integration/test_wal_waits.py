"""A new slot waits for open transactions within a bound, names them, and leaves nothing behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from dovecote.cli.main import app
from outbox.errors import NotFree
from outbox.schema.capture import installed as installed_capture
from outbox.schema.capture import use_wal
from tests.support.relaying import installed
from tests.support.waiting import until

# The command may make these before it is done: slots, publications, grants, its state.
_MADE = """
SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),
       (SELECT count(*) FROM pg_publication), (SELECT state FROM outbox.reading),
       (SELECT relacl::text FROM pg_class WHERE oid = 'outbox.capture'::regclass),
       (SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND backend_type = 'walsender')
"""


def made(dsn: str) -> tuple[Any, ...] | None:
    with psycopg.connect(dsn) as conn:
        return conn.execute(_MADE).fetchone()


@contextmanager
def billing(dsn: str) -> Iterator[psycopg.Connection]:
    """Yield a session with a transaction that has written and stays open."""
    with psycopg.connect(make_conninfo(dsn, application_name="billing")) as conn:
        conn.execute("SELECT pg_current_xact_id()")
        yield conn


def test_an_open_transaction_is_waited_for_within_a_bound_and_named(database: str) -> None:
    dsn = installed(database)
    before = made(dsn)
    with billing(dsn) as conn:
        named = rf"session {conn.info.backend_pid} of role {conn.info.user} \(billing\), open for"
        with pytest.raises(NotFree, match=rf"not made after 2 s.*{named} \d+ s;.*--within"):
            use_wal(dsn, "outbox", within=2)
        until(lambda: made(dsn) == before, within=20, what="nothing is left")
    assert len(use_wal(dsn, "outbox")) == 1


def test_slots_stay_until_there_are_new_ones(database: str) -> None:
    dsn = installed(database, "wal")
    with psycopg.connect(dsn) as conn:
        slot = installed_capture(conn, "outbox").slot
    before = made(dsn)
    with billing(dsn), pytest.raises(NotFree, match="open for"):
        use_wal(dsn, "outbox", accept_gap=True, within=2)
    until(lambda: made(dsn) == before, within=20, what="only the old slot is left")
    assert use_wal(dsn, "outbox", accept_gap=True) == [slot]


def test_the_command_has_the_bound_and_says_what_it_waits_for(database: str) -> None:
    command = ["init", "outbox", "--dsn", installed(database)]
    for wrong, said in (
        (["--within", "soon", "--capture", "wal"], "not a duration"),
        (["--within", "0s", "--capture", "wal"], "longer than 0"),
        (["--within", "1s"], "--within goes with --capture wal"),
    ):
        refused = CliRunner().invoke(app, [*command, *wrong])
        assert refused.exit_code != 0
        assert said in refused.stderr + str(refused.exception)
    with billing(database) as conn:
        result = CliRunner().invoke(app, [*command, "--capture", "wal", "--within", "4s"])
        assert isinstance(result.exception, NotFree)
        pid = conn.info.backend_pid
        assert f"waiting up to 4 s for open transactions: session {pid} of" in result.stderr
    done = CliRunner().invoke(app, [*command, "--capture", "wal", "--within", "60s"])
    assert done.exit_code == 0, done
