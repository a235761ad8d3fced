"""A server takes the auditor's slot away: the gap is said, nothing is found in it, it goes on."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from tests.support.audited import Running, Shop
from tests.support.audited_log import goes_on, relayed, slot_of
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import installed
from tests.support.waiting import patient, until

LOG = {"wal_keep_size": "0", "max_wal_size": "32MB", "max_slot_wal_keep_size": "60MB"}
IDLE = {"idle_replication_slot_timeout": "1s"}
WITH_IDLE = 180_000


@contextmanager
def shop_on(settings: dict[str, str], bootstrap: str, topic: str, folder: Path) -> Iterator[Shop]:
    """Run a Postgres of this test alone, with an outbox in its log."""
    place = temporary_directory(server_user())
    with Postgres(place, fsync=False, temporary=True, settings=settings) as server:
        shop = Shop(installed(server.dsn, capture="wal"), bootstrap, topic, folder)
        shop.extra["state"] = str(folder / "audit.sqlite3")
        shop.extra["partitions_since"] = "2020-01-01T00:00:00Z"
        yield shop


def take_away(shop: Shop, *, fill: bool = True) -> str:
    """Let the server take the auditor's slot away, and return the reason that it gives."""
    slot, reason = slot_of(shop.dsn), ""
    with psycopg.connect(shop.dsn, autocommit=True) as conn:

        def lost() -> bool:
            nonlocal reason
            if fill:
                conn.execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))")
                conn.execute("SELECT pg_switch_wal()")
            # The relay's slot would be taken away as well.
            relayed(shop.dsn)
            conn.execute("CHECKPOINT")
            query = (
                "SELECT coalesce(to_jsonb(s) ->> 'invalidation_reason', '') FROM"
                " pg_replication_slots AS s WHERE slot_name = %s AND wal_status = 'lost'"
            )
            row = conn.execute(query, [slot]).fetchone()
            reason = "" if row is None else str(row[0])
            return row is not None

        until(lost, within=60, what="an invalidated slot")
    return reason


def audited(shop: Shop) -> None:
    """Begin the audit, and let it find twenty events as they should be."""
    shop.audit(status=3)
    shop.publish(shop.write(20))
    relayed(shop.dsn)
    assert shop.audit(status=0)["findings"] == []


@pytest.mark.parametrize(
    ("settings", "reason", "todo"),
    [
        (LOG, "wal_removed", "raise max_slot_wal_keep_size"),
        (IDLE, "idle_timeout", "raise idle_replication_slot_timeout"),
    ],
    ids=["too much of the log", "idle for too long"],
)
def test_a_slot_that_the_server_took_away_is_said_with_what_to_do_and_the_audit_goes_on(
    stack: Servers,
    topic: MakeTopic,
    tmp_path: Path,
    settings: dict[str, str],
    reason: str,
    todo: str,
) -> None:
    with psycopg.connect(stack.postgres.dsn) as conn:
        if settings is IDLE and conn.info.server_version < WITH_IDLE:
            pytest.skip("this Postgres has no idle_replication_slot_timeout")
    with shop_on(settings, stack.kafka.bootstrap, topic(3), tmp_path) as shop:
        audited(shop)
        unseen = shop.write(20)
        shop.publish(unseen[3:])
        assert take_away(shop, fill=settings is LOG) in {reason, ""}
        told = shop.audit(status=3)
        (gap,) = told["not_audited"]
        assert gap["from"] < gap["to"]
        assert (reason in gap["why"], todo in gap["why"]) == (True, True), gap
        assert any(
            f": not audited from {gap['from']} to {gap['to']}" in each for each in told["troubles"]
        )
        assert told["findings"] == []
        goes_on(shop, unseen[:3])


def test_an_auditor_that_stood_still_for_too_long_says_its_gap_and_goes_on(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    with shop_on(LOG, stack.kafka.bootstrap, topic(3), tmp_path) as shop:
        audited(shop)
        shop.extra["http.port"] = 0
        with shop.auditing(shop.settings()) as running:
            until(lambda: "working" in get(running, "/readyz"), within=60, what="it works")
            os.kill(running.pid, signal.SIGSTOP)
            # The auditor still reads all that the server had sent, so none may be missing.
            shop.publish(shop.write(20))
            take_away(shop)
            os.kill(running.pid, signal.SIGCONT)
            until(lambda: "not audited from" in running.log, within=90, what="the gap is said")
            assert "raise max_slot_wal_keep_size" in running.log
            until(lambda: "behind" in get(running, "/readyz"), within=30, what="it is not ready")
            assert running.stop() == 0, running.log
            assert [each for each in running.told() if "kind" in each] == []
        (gap,) = shop.audit(status=3)["not_audited"]
        assert gap["from"] < gap["to"]
        goes_on(shop, [])


def get(running: Running, path: str) -> str:
    """Return what an auditor answers, whatever the status."""
    try:
        with urlopen(running.url() + path, timeout=patient(10)) as answer:  # noqa: S310  # our own
            return str(answer.read().decode())
    except HTTPError as error:
        with error:
            return error.read().decode()
