"""Find the line on which a caller waits, whichever library its connection comes from."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg

from dedup.waiting.lines import AsyncpgLine, AwaitedLine, Line, PsycopgAwaitedLine, PsycopgLine
from outbox.waiting import connections


@contextmanager
def line(conn: object) -> Iterator[Line]:
    """
    Yield the line of a connection that is not awaited.

    Raises:
        OpenTransaction: a transaction is open on it.
        UnsupportedConnection: it is no such connection; the message says what to give.
    """
    with connections.driver(conn) as driver:
        yield PsycopgLine(driver)


@asynccontextmanager
async def line_async(conn: object) -> AsyncIterator[AwaitedLine]:
    """As `line`, of a connection that has to be awaited."""
    async with connections.driver_async(conn) as driver:
        if isinstance(driver, psycopg.AsyncConnection):
            yield PsycopgAwaitedLine(driver)
        else:
            yield AsyncpgLine(driver)
