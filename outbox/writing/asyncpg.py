"""Write on asyncpg's connections, including those of a pool."""

from asyncpg import Connection, PostgresError
from asyncpg.pool import PoolConnectionProxy

from outbox.writing.append import Append, autocommit
from outbox.writing.find import Way

ADVICE = "give a connection: of a pool, `async with pool.acquire() as conn:`"
_OPEN = "open `async with conn.transaction():` around the write"


def way(kind: type) -> Way | None:
    """Return how events are written on connections of this class."""
    return Way(_write, awaits=True) if issubclass(kind, Connection | PoolConnectionProxy) else None


def require_transaction(conn: Connection) -> None:
    """
    Check that something ties an event to the caller's rows.

    Raises:
        NoTransaction: no transaction is open.
    """
    # asyncpg has no autocommit mode: anything outside a transaction commits by itself.
    if not conn.is_in_transaction():
        raise autocommit(_OPEN)


async def _write(conn: Connection, append: Append) -> None:
    require_transaction(conn)
    if not append.events:
        return
    statement = append.statement()
    try:
        await conn.execute(statement.numbered(), *statement.texts())
    except PostgresError as error:
        if explained := append.explained(error):
            raise explained from error
        raise
