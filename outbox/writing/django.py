"""Write on Django's connections, as `django.db` hands them out."""

from typing import Any

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from outbox.errors import NoTransaction, UnsupportedConnection
from outbox.postgres.ours import accept, tuples
from outbox.postgres.standing import hear, in_pipeline, is_open
from outbox.writing.append import Append, autocommit
from outbox.writing.find import Way

ADVICE = 'give the connection: `connection` of django.db, or `connections["alias"]`'
_OPEN = "open `with transaction.atomic():` around the write"


def way(kind: type) -> Way | None:
    """Return how events are written on connections of this class."""
    if issubclass(kind, BaseDatabaseWrapper | ConnectionProxy):
        return Way(_write, awaits=False)
    return None


def _write(conn: BaseDatabaseWrapper, append: Append) -> None:
    _require_psycopg(conn)
    # False in an atomic block, and where the settings have turned autocommit off.
    if conn.get_autocommit() or not _is_tied(conn.connection):
        raise autocommit(_OPEN)
    if _is_only_a_tests(conn):
        msg = f"no block is open but that of a TestCase, which your service does not have; {_OPEN}"
        raise NoTransaction(msg)
    if not append.events:
        return
    statement = append.statement()
    try:
        # Use Django's cursor, not the driver's, so that its wrappers and its query log see the
        # write.
        accept(conn.connection)
        with tuples(conn.connection), conn.cursor() as cursor:
            cursor.execute(statement.query.decode(), statement.ours())
    except DatabaseError as error:
        place = {"database": conn.settings_dict["NAME"], "role": conn.settings_dict["USER"]}
        if explained := append.explained(error.__cause__, **place):
            raise explained from error
        raise


def _is_tied(driver: Any) -> bool:  # noqa: ANN401  # psycopg's connection
    # Django knows only what went through Django.
    if in_pipeline(driver):
        hear(driver)
    return is_open(driver)


def _is_only_a_tests(conn: BaseDatabaseWrapper) -> bool:
    """Return whether Django's TestCase alone has begun the transaction, in place of the caller."""
    blocks = conn.atomic_blocks
    return (
        bool(blocks)
        and all(block._from_testcase for block in blocks)  # noqa: SLF001  # as its `durable` does
        # Without autocommit, the caller needs no block of its own.
        and conn.settings_dict["AUTOCOMMIT"]
    )


def _require_psycopg(conn: BaseDatabaseWrapper) -> None:
    if conn.vendor == "postgresql" and conn.Database.__name__ == "psycopg":
        return
    msg = (
        f"events cannot be written through Django's {conn.vendor} backend on "
        f"{conn.Database.__name__}; it takes PostgreSQL with psycopg 3"
    )
    raise UnsupportedConnection(msg)
