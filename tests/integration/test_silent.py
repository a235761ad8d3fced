"""Sockets that stay open and are silent: every wait on a server ends, and the relay goes on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proof.proxy import Proxy
from relay.postgres.connect import connect
from tests.support.failover import place_of
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import (
    AGREE,
    commit,
    committed,
    difference,
    event,
    installed,
    published,
    relays,
)
from tests.support.waiting import patient, until

BOUND = 30.0
"""The documented bound, in seconds."""
SLACK = 10.0


@contextmanager
def network(dsn: str) -> Iterator[tuple[Proxy, str]]:
    with Proxy(place_of(dsn)) as proxy:
        yield proxy, make_conninfo(dsn, host="127.0.0.1", port=proxy.port)


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_relay_whose_sessions_fall_silent_goes_on_with_new_ones(
    stack: Servers, database: str, topic: MakeTopic, tmp_path: Path, capture: str
) -> None:
    name = topic(1)
    installed(database, capture)
    with (
        network(database) as (between, dsn),
        relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet,
    ):
        relay = fleet.active(lease="10s")
        commit(database, event(name, 0))
        published(fleet, name, 1)
        between.strand()
        commit(database, event(name, 1))
        stranded = time.monotonic()
        until(
            lambda: relay.get("/readyz").status == 503,
            within=BOUND / 2,
            what="it is not ready",
        )
        found = published(fleet, name, 2, within=BOUND + SLACK)
        assert time.monotonic() - stranded < BOUND / 2 + BOUND + patient(SLACK)
        assert difference(committed(database, name), found) == AGREE
        until(lambda: relay.get("/readyz").status == 200, within=10, what="ready again")


def test_an_answer_that_never_comes_is_given_up(database: str) -> None:
    with network(database) as (between, dsn), connect(dsn, purpose="test") as conn:
        between.strand()
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="no answer for"):
            conn.execute("SELECT 1")
        assert time.monotonic() - began < BOUND
        assert conn.closed


def test_a_network_that_swallows_new_connections_too_is_given_up(database: str) -> None:
    with network(database) as (between, dsn), connect(dsn, purpose="test") as conn:
        between.stall()
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="no answer for"):
            conn.execute("SELECT 1")
        assert time.monotonic() - began < BOUND


def test_a_server_that_takes_long_is_waited_for(database: str) -> None:
    with connect(database, purpose="test") as conn:
        conn.silence = 0.5
        assert conn.execute("SELECT 1 FROM pg_sleep(3)").fetchone() == (1,)
        with psycopg.connect(database) as other:
            other.execute("SELECT pg_advisory_lock(4711)")
            with pytest.raises(psycopg.errors.QueryCanceled):
                conn.execute("SET statement_timeout = '3s'; SELECT pg_advisory_lock(4711)")
        assert not conn.closed
