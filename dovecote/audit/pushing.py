"""Count the deliveries of push, for each subscription, and repeats among the last ones."""

from contextlib import closing
from typing import Any

import psycopg
from psycopg import sql

from dovecote.audit.away import away
from dovecote.audit.parts import Pusher
from dovecote.audit.store import Store
from outbox.errors import DovecoteError
from outbox.postgres.session import connect

_MOST = 20_000


class Pushing:
    """One push, by its database. It keeps the last attempts only, so these are counted."""

    def __init__(self, pusher: Pusher, store: Store) -> None:
        self.pusher, self._store = pusher, store
        self._fact = f"push {pusher.name}"
        told = store.fact(self._fact, {})
        self._last: int = told.get("last", 0)
        self.counts: dict[str, dict[str, int]] = told.get("counts", {})
        self._delivered: dict[str, dict[str, None]] = {}

    def look(self) -> None:
        """
        Count the attempts since the last look.

        Raises:
            Away: the database does not answer.
        """
        schema = self.pusher.schema
        attempts = sql.SQL(
            "SELECT id, subscription, told FROM {} WHERE id > %s ORDER BY id LIMIT %s"
        ).format(sql.Identifier(schema, "attempts"))
        totals = sql.SQL("SELECT subscription, delivered, failed, dead FROM {}").format(
            sql.Identifier(schema, "counts")
        )
        try:
            with closing(connect(self.pusher.dsn, name="dovecote-audit")) as conn:
                new: Any = conn.execute(attempts, [self._last, _MOST]).fetchall()
                all_: Any = conn.execute(totals).fetchall()
        except (psycopg.Error, DovecoteError) as error:
            raise away(self.pusher.part, error) from error
        for subscription, delivered, failed, dead in all_:
            its = self.counts.setdefault(subscription, {"repeated": 0})
            its.update(delivered=delivered, failed=failed, dead=dead)
        for number, subscription, told in new:
            self._last = number
            if told.get("outcome") == "delivered":
                self._count(subscription, told)
        self._store.note(self._fact, {"last": self._last, "counts": self.counts})

    def _count(self, subscription: str, told: dict[str, Any]) -> None:
        place = f"{told.get('topic')}/{told.get('partition')}/{told.get('offset')}"
        known = self._delivered.setdefault(subscription, {})
        its = self.counts.setdefault(subscription, {"repeated": 0})
        its["repeated"] += place in known
        known[place] = None
        if len(known) > _MOST:
            del known[next(iter(known))]
