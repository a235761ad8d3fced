"""Subscriptions that one process alone may deliver: those to explicit partitions."""

from collections.abc import Collection

from psycopg import Connection

_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"


class Claims:
    """
    What this process holds, for as long as its connection lives.

    Nobody in a consumer group shares explicit partitions, so the database says whose they are.
    """

    def __init__(self, conn: Connection, schema: str) -> None:
        self._conn, self._schema = conn, schema
        self._held: set[str] = set()

    def take(self, ids: Collection[str]) -> frozenset[str]:
        """Return which of `ids` are ours now; what is not among them is let go."""
        for id_ in sorted(self._held - set(ids)):
            self._conn.execute(_UNLOCK, [self._name(id_)])
            self._held.discard(id_)
        for id_ in sorted(set(ids) - self._held):
            row = self._conn.execute(_LOCK, [self._name(id_)]).fetchone()
            if row is not None and row[0]:
                self._held.add(id_)
        return frozenset(self._held)

    def _name(self, id_: str) -> str:
        return f"dovecote.push/{self._schema}/{id_}"
