"""
The claim of a name on an outbox, as the database remembers it, to be held against progress.

Progress lies in Kafka. Whether the database is still in the state that progress was made of, no
number tells: a volume that was put back gives the same transaction ids and positions of the log
out again. So each relay that takes over, and now and then the active one, writes a nonce, first
into the database and then into progress. The database keeps two, for a crash may come between the
two steps. A database that was put back has neither, for good.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from relay.errors import LeaseLost, Refused
from relay.lsn import parse_lsn
from relay.progress import Cursor, LogPosition, Origin, Progress
from relay.server_log import end_of_log

RECONCILE = "dovecote reconcile"

# The active relay writes a new nonce this often, in seconds, while it publishes.
_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class Held:
    """What the database remembers of one name."""

    began: bool
    """Its first progress is in Kafka."""
    since: str
    cluster: str | None
    term: int
    nonce: str | None
    previous: str | None


def misfit(progress: Progress, held: Held | None) -> str | None:
    """Return why this database is not the one that `progress` was made of, or None if it is."""
    if progress.cursor == Cursor():
        # Nothing was published yet.
        return None
    if held is not None and progress.nonce in {held.nonce, held.previous}:
        return None
    return (
        f"this database was put back to an earlier state: progress of outbox {progress.name!r}, "
        f"which reached {progress.cursor}, carries a nonce that the database does not have. Kafka "
        "may have events of which there are no rows any more, and new transactions may have the "
        f"numbers of lost ones; `{RECONCILE}` tells what is missing where, and goes on with "
        "`--accept-restored`"
    )


def other_cluster(held: Held | None, name: str, cluster: str) -> str | None:
    """Return why an outbox must not be published to `cluster`, or None if it may."""
    if held is None or held.cluster in {None, cluster}:
        return None
    return (
        f"outbox {name!r} is published to the Kafka cluster {held.cluster}, and this is cluster "
        f"{cluster}: what it has is a copy, or nothing. Correct `bootstrap.servers` or give this "
        f"relay a `name` of its own; if this cluster is to take the other's place, `{RECONCILE}` "
        "tells what it lacks, and goes on with `--accept-cluster`"
    )


class Claim:
    """One outbox name in the database of `conn`; each method is a transaction of its own."""

    def __init__(self, conn: psycopg.Connection[Any], schema: str, name: str) -> None:
        self._conn, self._schema, self._name = conn, schema, name

    def read(self, origin: Origin) -> Held | None:
        """Return what is remembered of the name, None if it never began here."""
        row = self._conn.execute(
            sql.SQL(
                "SELECT began, since::timestamptz(0)::text, cluster, term, nonce::text,"
                " previous::text FROM {}"
                " WHERE (name, system_identifier, database) = (%s, %s, %s)"
            ).format(sql.Identifier(self._schema, "claims")),
            [self._name, origin.system_identifier, origin.database],
        ).fetchone()
        return None if row is None else Held(*row)

    def require_none(self, origin: Origin, topic: str) -> None:
        """
        Check that nothing was published under this name, of which there is no progress.

        Raises:
            Refused: something was: its progress was lost.
        """
        held = self.read(origin)
        if held is not None and held.began:
            msg = (
                f"outbox {self._name!r} has published from this database since {held.since}, but "
                f"progress topic {topic} of this Kafka knows nothing of it: it was deleted or "
                "trimmed, or this is another Kafka. Beginning anew would publish everything "
                "again: give this relay a `name` of its own if that is wanted, or restore the "
                "topic"
            )
            raise Refused(msg)

    def take(self, held: Held | None, cluster: str, progress: Progress | None) -> "Term":
        """
        Begin a term, if the database remembers what `held` says; `progress` is what Kafka has.

        Raises:
            LeaseLost: another relay was faster.
        """
        carried, beyond = (progress.nonce, progress.term) if progress else ("", 0)
        number, nonce, lsn = self._renew(held.nonce if held else None, cluster, carried, beyond)
        return Term(self, cluster, number=number, carried=carried, nonce=nonce, lsn=lsn)

    def renew(self, cluster: str, known: str) -> tuple[str, int]:
        """
        Write a new nonce; `known` is the one that both the database and progress have.

        Raises:
            LeaseLost: another relay has taken over.
        """
        _, nonce, lsn = self._renew(known, cluster, known, None)
        return nonce, lsn

    def begin(self) -> None:
        """Remember that this name has published; only once its progress is durable."""
        self._conn.execute(
            sql.SQL("SELECT {}(%s)").format(sql.Identifier(self._schema, "begin_claim")),
            [self._name],
        )

    def _renew(
        self, known: str | None, cluster: str, kept: str, beyond: int | None
    ) -> tuple[int, str, int]:
        row = self._conn.execute(
            sql.SQL("SELECT term, nonce::text FROM {}(%s, %s, %s::uuid, %s::uuid, %s)").format(
                sql.Identifier(self._schema, "renew_claim")
            ),
            [self._name, cluster, known, kept or None, beyond],
        ).fetchone()
        if row is None:
            msg = f"another relay has taken over outbox {self._name!r}"
            raise LeaseLost(msg)
        # Behind the commit: a server that has all before this place has the nonce, too.
        return row[0], row[1], parse_lsn(end_of_log(self._conn))


class Term:
    """
    One relay's time as the active one: what its progress records carry.

    `renew` is called by the thread that keeps the role, everything else by the one that publishes.
    """

    def __init__(
        self, claim: Claim, cluster: str, *, number: int, carried: str, nonce: str, lsn: int
    ) -> None:
        self.number = number
        self._claim, self._cluster = claim, cluster
        self._lock, self._renewing = threading.Lock(), threading.Lock()
        self._is_over = False
        self._carried = carried
        """What progress in Kafka has."""
        self._next: tuple[str, int] | None = (nonce, lsn)
        """What it is to have next, and where the log ends that has its commit."""
        self._renewed = time.monotonic()
        self._has_published = False

    def nonce(self, place: Cursor | LogPosition, lsn: str) -> str:
        """Return what progress at `place` carries; it was read when the log was at `lsn`."""
        with self._lock:
            if self._next is None:
                return self._carried
            reached = (
                parse_lsn(lsn) if isinstance(place, Cursor) else max(place.lsn, place.seen_to)
            )
            # A failover that loses the nonce alone must have lost nothing.
            return (
                self._next[0] if reached >= self._next[1] or not self._carried else self._carried
            )

    def is_due(self, progress: Progress) -> bool:
        """Tell whether `progress` is worth a record for its nonce alone."""
        # A reader of the log moves on by itself where nothing is published, with a record.
        return isinstance(progress.cursor, Cursor) and progress.nonce != self._carried

    def published(self, progress: Progress, *, rows: bool) -> None:
        """Learn that `progress` is durable."""
        with self._lock:
            self._has_published = self._has_published or rows
            if self._next is not None and progress.nonce == self._next[0]:
                self._carried, self._next = progress.nonce, None

    def end(self) -> None:
        """Write no nonce any more: the next term is about to."""
        with self._renewing:
            self._is_over = True

    def renew(self) -> None:
        """
        Write a new nonce, if it is time and anything was published since the last one.

        Raises:
            LeaseLost: another relay has taken over.
        """
        now = time.monotonic()
        with self._renewing:
            with self._lock:
                is_due = self._has_published and now - self._renewed >= _EVERY
                if self._is_over or self._next or not is_due:
                    return
                self._renewed, self._has_published = now, False
            # Until there is a new one, what is carried does not change.
            following = self._claim.renew(self._cluster, self._carried)
            with self._lock:
                self._next = following
