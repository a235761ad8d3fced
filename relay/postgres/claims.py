"""
The claim of a name on an outbox, as the database remembers it, to compare with progress.

Progress lies in Kafka. No number shows whether the database is still in the state from which
progress was made: a restored volume assigns the same transaction ids and log positions again. So
each relay that takes over, and now and then the active one, writes a nonce, first into the
database and then into progress. The database keeps two, because a crash may come between the two
steps. A restored database will never have either of them.

A mark goes with the nonce: the progress that was durable then, and the relay's clock. For a
restored database, the mark says where to begin looking for events that Kafka has and the database
may lack. So rows and the log are kept from the mark on.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import psycopg
from psycopg import sql

from relay.errors import LeaseLost, Refused
from relay.postgres.server_log import end_of_log
from relay.rules.places.fit import Held, misfit, put_back_refusal, to_be_found
from relay.rules.places.lsn import parse_lsn
from relay.rules.places.progress import Cursor, LogPosition, Origin, Place, Progress

# Seconds after which the active relay writes a new nonce while it publishes.
_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Durable progress, and a time before which all of it was sent."""

    progress: Progress | None
    at: int

    @classmethod
    def now(cls, progress: Progress | None) -> Self:
        """Return the mark of `progress`, after which nothing has been sent yet."""
        return cls(progress, int(time.time() * 1000))


class Nonce(NamedTuple):
    """The next nonce of progress."""

    text: str
    lsn: int
    """Where the log that has its commit ends."""


class Claim:
    """One outbox name in the database of `conn`; each method is a transaction of its own."""

    def __init__(self, conn: psycopg.Connection[Any], schema: str, name: str) -> None:
        self._conn, self._schema, self._name = conn, schema, name

    def read(self, origin: Origin) -> Held | None:
        """Return what the database remembers of the name, None if it never began here."""
        row = self._conn.execute(
            sql.SQL(
                "SELECT began, since::timestamptz(0)::text, cluster, term, nonce::text,"
                " previous::text, mark, marked_at FROM {}"
                " WHERE (name, system_identifier, database) = (%s, %s, %s)"
            ).format(sql.Identifier(self._schema, "claims")),
            [self._name, origin.system_identifier, origin.database],
        ).fetchone()
        if row is None:
            return None
        began, since, held_by, term, nonce, previous, mark, at = row
        progress = Progress.decode(mark.encode()) if mark else None
        return Held(began, since, held_by, term, nonce, previous, progress, at)

    def misfit(self, progress: Progress, held: Held | None) -> str | None:
        """Return why `progress` was not made from this database in its present state, or None."""
        if reason := misfit(progress, held):
            return reason
        if (newest := to_be_found(progress, held)) is None:
            return None
        events = sql.Identifier(self._schema, "events")
        query = sql.SQL("SELECT FROM {} WHERE position = %s AND id = %s::uuid").format(events)
        if self._conn.execute(query, newest).fetchone() is not None:
            return None
        return put_back_refusal(progress, f"is behind an event {newest.which}")

    def require_none(self, origin: Origin, topic: str) -> None:
        """
        Check that nothing was published under this name whose progress is missing.

        Raises:
            Refused: something was, and its progress was lost.
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

    def take(
        self,
        held: Held | None,
        cluster: str,
        progress: Progress | None,
        *,
        begins: Progress | None = None,
        keep: bool = False,
    ) -> "Term":
        """
        Begin a term if the database still has what `held` says; `progress` is what Kafka has.

        The mark is set to `begins`, by default to `progress`; if `keep` is true it stays as it is.

        Raises:
            LeaseLost: another relay was faster.
        """
        carried, beyond = (progress.nonce, progress.term) if progress else ("", 0)
        known, mark = held.nonce if held else None, Mark.now(begins or progress)
        kept = "" if keep else carried
        number, nonce, lsn = self._renew(
            cluster, known=known, kept=kept, beyond=beyond, mark=None if keep else mark
        )
        return Term(self, cluster, mark, number=number, carried=carried, nonce=nonce, lsn=lsn)

    def raise_term(self, held: Held | None, cluster: str, progress: Progress) -> int:
        """
        Return the number of a new term whose progress still carries its present nonce.

        Raises:
            LeaseLost: another relay was faster.
        """
        number, _, _ = self._renew(
            cluster,
            known=held.nonce if held else None,
            kept=progress.nonce,
            beyond=progress.term,
            mark=None,
            anew=False,
        )
        return number

    def move(self, held: Held, cluster: str) -> None:
        """
        Record that `cluster` has everything that is published; the nonces and the mark stay.

        Raises:
            LeaseLost: another relay was faster.
        """
        self._renew(
            cluster, known=held.nonce, kept=held.previous or "", beyond=None, mark=None, anew=False
        )

    def renew(self, cluster: str, known: str, carried: str, mark: Mark) -> Nonce:
        """
        Write a new nonce and `mark`; the database has `known`, and progress has `carried`.

        Raises:
            LeaseLost: another relay has taken over.
        """
        _, nonce, lsn = self._renew(cluster, known=known, kept=carried, beyond=None, mark=mark)
        return Nonce(nonce, lsn)

    def begin(self) -> None:
        """Record that this name has published; call it only once its progress is durable."""
        self._conn.execute(
            sql.SQL("SELECT {}(%s)").format(sql.Identifier(self._schema, "begin_claim")),
            [self._name],
        )

    def _renew(
        self,
        cluster: str,
        *,
        known: str | None,
        kept: str,
        beyond: int | None,
        mark: Mark | None,
        anew: bool = True,
    ) -> tuple[int, str, int]:
        progress = mark.progress if mark else None
        row = self._conn.execute(
            sql.SQL(
                "SELECT term, nonce::text FROM {}(%s, %s, %s::uuid, %s::uuid, %s, %s, %s, %s)"
            ).format(sql.Identifier(self._schema, "renew_claim")),
            [
                *(self._name, cluster, known, kept or None, beyond),
                *(progress.encode().decode() if progress else None, mark.at if mark else None),
                anew,
            ],
        ).fetchone()
        if row is None:
            msg = f"another relay has taken over outbox {self._name!r}"
            raise LeaseLost(msg)
        # Read after the commit: a server that has everything before this place has the nonce too.
        return row[0], row[1], parse_lsn(end_of_log(self._conn))


class Term:
    """
    One relay's time as the active one, with what its progress records carry.

    The thread that keeps the role calls `renew`, too; the publishing thread calls everything else.
    """

    def __init__(
        self,
        claim: Claim,
        cluster: str,
        mark: Mark,
        *,
        number: int,
        carried: str,
        nonce: str,
        lsn: int,
    ) -> None:
        self.number = number
        self._claim, self._cluster = claim, cluster
        self._lock, self._renewing = threading.Lock(), threading.Lock()
        self._is_over = False
        self._carried = carried
        """The nonce in Kafka's progress."""
        self._next: Nonce | None = Nonce(nonce, lsn)
        self._renewed = time.monotonic()
        self.mark = mark
        """Durable progress by now."""
        self._has_published = False
        """Since the last mark in the database."""
        self._safe = mark.progress.cursor if mark.progress else Cursor()

    def nonce(self, place: Cursor | LogPosition, lsn: str) -> str:
        """Return the nonce for progress at `place`, which was read when the log was at `lsn`."""
        with self._lock:
            if self._next is None:
                return self._carried
            reached = (
                parse_lsn(lsn) if isinstance(place, Cursor) else max(place.lsn, place.seen_to)
            )
            # A failover that loses nothing but the nonce must not count as a loss.
            is_kept = reached >= self._next.lsn or not self._carried
            return self._next.text if is_kept else self._carried

    def is_due(self, progress: Progress) -> bool:
        """Return whether `progress` is worth a record for its nonce alone."""
        # A reader of the log moves on by itself while nothing is published, and writes a record.
        return isinstance(progress.cursor, Cursor) and progress.nonce != self._carried

    @property
    def has_switched(self) -> bool:
        """Return whether progress switched between table and log since the last mark."""
        progress = self.mark.progress
        return progress is not None and not isinstance(progress.cursor, type(self._safe))

    @property
    def safe(self) -> Place:
        """How far the database may forget: it has a mark of that place."""
        return self._safe

    def published(self, progress: Progress, *, rows: bool) -> None:
        """Note that `progress` is durable, and that nothing after it has been sent yet."""
        with self._lock:
            self.mark = Mark.now(progress)
            self._has_published = self._has_published or rows
            if not self._has_published and isinstance(progress.cursor, type(self._safe)):
                self._safe = progress.cursor
            if self._next is not None and progress.nonce == self._next.text:
                self._carried, self._next = progress.nonce, None

    def end(self) -> None:
        """Write no more nonces: the next term is about to write its own."""
        with self._renewing:
            self._is_over = True

    def renew(self, *, at_once: bool = False) -> None:
        """
        Write a new nonce and mark if one is due and anything was published since the last one.

        The publishing thread may ask for it `at_once`.

        Raises:
            LeaseLost: another relay has taken over.
        """
        now = time.monotonic()
        with self._renewing:
            with self._lock:
                is_due = self._has_published and now - self._renewed >= _EVERY
                if self._is_over or not (at_once or is_due) or (self._next and not at_once):
                    return
                self._renewed, self._has_published = now, False
                mark, known = self.mark, self._next.text if self._next else self._carried
            following = self._claim.renew(self._cluster, known, self._carried, mark)
            with self._lock:
                self._next = following
                durable = mark if self._has_published else self.mark
                self._safe = durable.progress.cursor if durable.progress else Cursor()
