"""The slots of an outbox in the write-ahead log: the relay's and the auditor's."""

import os
import subprocess
from typing import Any

import psycopg

from outbox.schema.capture import installed
from tests.support.audited import DSN, Shop, kinds
from tests.support.relaying import COMMAND
from tests.support.waiting import patient


def slot_of(dsn: str) -> str:
    """Return the name of the auditor's slot."""
    with psycopg.connect(dsn) as conn:
        return installed(conn, "outbox").slot.replace("dovecote_", "dovecote_audit_", 1)


def relayed(dsn: str) -> None:
    """Move the relay's slot, as a relay does that has published all that is committed."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        slot = installed(conn, "outbox").slot
        # A transaction that is not an event's lies between: the place is after all commits.
        conn.execute("SELECT pg_logical_emit_message(true, 'other', '')")
        conn.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [slot])


def drop_slot(dsn: str) -> None:
    """Drop the auditor's slot, if there is one."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE slot_name = %s",
            [slot_of(dsn)],
        )


def drop_by_command(shop: Shop) -> str:
    """Drop the auditor's slot as an operator does, and return what the command says."""
    done = subprocess.run(
        [COMMAND, "audit", "--drop-slot", "-c", str(shop.settings())],
        env={**os.environ, DSN: shop.dsn},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def goes_on(shop: Shop, unseen: list[Any]) -> None:
    """Publish what was written in the gap, and require that only a later fault is found."""
    shop.publish(unseen)
    after = shop.write(30)
    shop.publish([each for each in after if each is not after[7]])
    relayed(shop.dsn)
    told = shop.audit(status=1)
    assert kinds(told) == [("lost", after[7].id)]
    assert told["not_audited"] == []
