"""Ask Postgres for the state of an outbox's replication slot."""

from dataclasses import dataclass

import psycopg

from outbox import capture as outbox_capture
from relay.capture.slot import Beginning, Slot
from relay.lsn import parse_lsn
from relay.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Look:
    """What the server said at one moment."""

    installed: outbox_capture.Capture
    slot: Slot | None
    end: int
    """Where the log ends now."""

    @property
    def beginning(self) -> Beginning | None:
        """Where the slot begins, None if none was ever made."""
        if self.installed.begins_at is None:
            return None
        before = self.installed.before
        return Beginning(
            parse_lsn(self.installed.begins_at), None if before is None else Snapshot.parse(before)
        )

    @property
    def retained(self) -> int:
        """Bytes of the log that the server keeps for the slot."""
        restart = self.slot.restart if self.slot else None
        return 0 if restart is None else max(0, self.end - restart)


def look(conn: psycopg.Connection, schema: str) -> Look:
    """Return how the slot of the outbox in `schema` is doing."""
    installed = outbox_capture.installed(conn, schema)
    row = conn.execute(
        "SELECT (SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s),"
        " pg_current_wal_lsn()::text",
        [installed.slot],
    ).fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    described, end = row
    return Look(installed, Slot.from_catalog(described) if described else None, parse_lsn(end))
