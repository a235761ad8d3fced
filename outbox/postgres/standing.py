"""
Ask a connection of psycopg whether a statement would be in a transaction that the caller ends.

In a pipeline the driver calls every connection active that has sent something, and what is queued
it has not sent. Only a connection that has heard all answers knows.
"""

from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus


def in_pipeline(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Return whether the connection's answers may be outstanding."""
    return conn.pgconn.pipeline_status != 0


def is_open(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """
    Return whether a statement is in a transaction, of which the driver may have yet to begin it.

    In a pipeline, first `hear` its answers.
    """
    return not conn.autocommit or conn.info.transaction_status is not TransactionStatus.IDLE


def hear(conn: Connection[Any]) -> None:
    """Wait for all answers that a pipeline owes; an error among them is the caller's."""
    with conn.pipeline():  # entered again, it waits
        pass


async def hear_async(conn: AsyncConnection[Any]) -> None:
    """As `hear`, on an async connection."""
    async with conn.pipeline():
        pass
