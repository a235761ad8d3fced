"""Store what operators look at for each subscription: last attempts, counts, reports."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.types.json import Jsonb

from dovecote.push.rules.sending.ports import AttemptReport, DeliveryReport
from dovecote.push.store.tables import Tables

RING = 100
"""Number of attempts that are kept for a subscription."""

# A report may also seem to be of the future: Postgres's clock may have been set back.
_FRESH_SECONDS = 15
_MOST_ANSWER = 500


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Results of a subscription's attempts since it was made."""

    delivered: int = 0
    failed: int = 0
    dead: int = 0


class Notes:
    """Written by every process, in batches, and read by the process that serves the API."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def write(
        self, attempts: Mapping[str, Sequence[AttemptReport]], counts: Mapping[str, AttemptCounts]
    ) -> None:
        """Add attempts to the stored ones of each subscription, and counts to its counts."""
        with self._tables.begin() as conn:
            query = "SELECT id FROM {}.subscriptions ORDER BY id FOR KEY SHARE"
            known = {id_ for (id_,) in self._tables.execute(conn, query)}
            for id_ in sorted(known & counts.keys()):
                self._tables.execute(
                    conn,
                    "INSERT INTO {}.counts AS c VALUES (%s, %s, %s, %s)"
                    " ON CONFLICT (subscription) DO UPDATE SET"
                    " delivered = c.delivered + excluded.delivered,"
                    " failed = c.failed + excluded.failed, dead = c.dead + excluded.dead",
                    id_,
                    *asdict(counts[id_]).values(),
                )
            for id_ in sorted(known & attempts.keys()):
                self._add(conn, id_, attempts[id_][-RING:])

    def attempts(self, id_: str) -> list[dict[str, Any]]:
        """Return the last attempts of a subscription, newest first."""
        with self._tables.begin() as conn:
            query = (
                "SELECT told FROM {}.attempts WHERE subscription = %s ORDER BY id DESC LIMIT %s"
            )
            return [row[0] for row in self._tables.execute(conn, query, id_, RING)]

    def counts(self) -> dict[str, AttemptCounts]:
        """Return the results of each subscription's attempts, by its name."""
        with self._tables.begin() as conn:
            rows = self._tables.execute(conn, "SELECT * FROM {}.counts")
            return {id_: AttemptCounts(*numbers) for id_, *numbers in rows}

    def report(self, process: UUID, told: Mapping[str, DeliveryReport]) -> None:
        """Store a process's report on its subscriptions, in place of its last one."""
        with self._tables.begin() as conn:
            query = (
                "DELETE FROM {}.reports WHERE process = %s"
                " OR abs(extract(epoch FROM now() - at)) > %s"
            )
            self._tables.execute(conn, query, process, 2 * _FRESH_SECONDS)
            for id_, each in sorted(told.items()):
                self._tables.execute(
                    conn,
                    "INSERT INTO {}.reports (process, subscription, told) VALUES (%s, %s, %s)",
                    *(process, id_, Jsonb(asdict(each))),
                )

    def reports(self) -> dict[str, list[DeliveryReport]]:
        """Return the last reports of live processes on each subscription, by its name."""
        found: dict[str, list[DeliveryReport]] = {}
        with self._tables.begin() as conn:
            query = (
                "SELECT subscription, told FROM {}.reports"
                " WHERE abs(extract(epoch FROM now() - at)) < %s ORDER BY process"
            )
            for id_, told in self._tables.execute(conn, query, _FRESH_SECONDS):
                found.setdefault(id_, []).append(DeliveryReport.read(told))
        return found

    def _add(self, conn: Connection, id_: str, attempts: Sequence[AttemptReport]) -> None:
        told = [Jsonb(_plain(each)) for each in attempts]
        self._tables.execute(
            conn,
            "INSERT INTO {}.attempts (subscription, told) SELECT %s, unnest(%s::jsonb[])",
            *(id_, told),
        )
        self._tables.execute(
            conn,
            "DELETE FROM {}.attempts WHERE subscription = %s AND id <= (SELECT id FROM {}.attempts"
            " WHERE subscription = %s ORDER BY id DESC OFFSET %s LIMIT 1)",
            *(id_, id_, RING),
        )


def _plain(attempt: AttemptReport) -> dict[str, Any]:
    """Return an attempt as JSON that Postgres takes, whatever a record or an answer contained."""
    told = {**attempt._asdict(), "detail": attempt.detail[:_MOST_ANSWER]}
    return {
        name: value.encode(errors="replace").decode().replace("\0", "")
        if isinstance(value, str)
        else value
        for name, value in told.items()
    }
