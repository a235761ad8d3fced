"""The events in the outbox of a test's database."""

from typing import Any

import psycopg

from outbox.event import Event
from outbox.testing.written import written, written_async


class OutboxEvents:
    """
    Returns the events of a database's outbox, in order.

    Called without a connection, it returns those of committed transactions. With one, it returns
    what the connection sees: also what its open transaction has written.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def __call__(self, conn: Any = None) -> list[Event]:  # noqa: ANN401  # any that `write` takes
        if conn is not None:
            return written(conn, which="all")
        with psycopg.connect(self._dsn) as own:
            return written(own, which="all")

    async def seen_by(self, conn: Any) -> list[Event]:  # noqa: ANN401  # any that `write_async` takes
        """Return what a connection sees that has to be awaited."""
        return await written_async(conn, which="all")
