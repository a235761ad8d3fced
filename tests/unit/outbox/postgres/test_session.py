"""A connection string that cannot be right is an error of the driver, and no part of it shows."""

import asyncio
from typing import Never

import psycopg
import pytest

from outbox.postgres.overdue import AsyncConnection, Connection
from outbox.postgres.session import connect, parsed

SECRET = "S3CRET"  # noqa: S105  # of this test
UNREADABLE = [
    f"host=127.0.0.1 port=9 password=two {SECRET}",
    f"postgresql://u:{SECRET}%zz@127.0.0.1:9/d",
    f"postgresql://u:a@{SECRET}@127.0.0.1:9/d",
    f"host=127.0.0.1 password={SECRET}\udcfc",
]


def no_async(dsn: str) -> Never:
    asyncio.run(AsyncConnection.open(dsn, patience=1))
    raise AssertionError


@pytest.mark.parametrize("dsn", UNREADABLE)
@pytest.mark.parametrize(
    "open_", [connect, lambda dsn: Connection.open(dsn, patience=1), no_async]
)
def test_a_connection_string_that_cannot_be_read_is_not_quoted(dsn: str, open_: object) -> None:
    assert callable(open_)
    with pytest.raises(psycopg.ProgrammingError, match="not shown") as refused:
        open_(dsn)
    assert SECRET not in str(refused.value)
    assert refused.value.__suppress_context__
    with pytest.raises(ValueError, match="not shown"):
        parsed(dsn)


@pytest.mark.parametrize("open_", [connect, no_async])
def test_a_host_that_can_be_none_is_an_error_of_the_driver(open_: object) -> None:
    assert callable(open_)
    with pytest.raises(psycopg.OperationalError, match="is no name"):
        open_("host=db..internal port=9")


def test_a_socket_may_begin_with_the_character_of_an_abstract_name() -> None:
    assert parsed("host=@postgres,/var/run user=u@h")["user"] == "u@h"
