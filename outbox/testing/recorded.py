"""Connections for unit tests, which need no database."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from outbox.errors import UnsupportedConnection
from outbox.lazily import advice
from outbox.testing.psycopg import RecordedAsyncConnection, RecordedConnection
from outbox.testing.recording import Answers, Recorded

if TYPE_CHECKING:
    from outbox.testing.asyncpg import RecordedAsyncpg

__all__ = ["Recorded", "recorded"]

_KINDS = ("psycopg", "psycopg_async", "asyncpg")


@overload
def recorded(
    of: Literal["psycopg"] = "psycopg",
    *,
    answers: Answers | None = None,
    autocommit: bool = False,
) -> AbstractContextManager[RecordedConnection]: ...
@overload
def recorded(
    of: Literal["psycopg_async"],
    *,
    answers: Answers | None = None,
    autocommit: bool = False,
) -> AbstractContextManager[RecordedAsyncConnection]: ...
@overload
def recorded(
    of: Literal["asyncpg"], *, answers: Answers | None = None
) -> "AbstractContextManager[RecordedAsyncpg]": ...
@overload
def recorded(of: object) -> AbstractContextManager[Recorded]: ...


def recorded(
    of: Any = "psycopg",
    *,
    answers: Answers | None = None,
    autocommit: bool = False,
) -> AbstractContextManager[Any]:
    """
    Yield a connection that needs no database and records what `write` is given.

    `write` checks each event as on a real connection, and raises the same errors. Commits,
    rollbacks and savepoints count: `events` has what was not rolled back, `committed` what was
    committed. At the end of the block, the connection commits, or rolls back after an exception.

    `of` is `"psycopg"`, `"psycopg_async"` or `"asyncpg"`; or a session of SQLAlchemy, which may be
    async and of any database. Such a session stays your own, and what is yielded has its events.

    `answers(query, params)` returns the rows of your code's own queries; there are none otherwise.
    `autocommit` makes psycopg's connection one that needs a block around `write`.

    Nobody refuses what only a server can: a missing schema, a missing right, a topic that the role
    may not write to.

    Raises:
        UnsupportedConnection: `of` is none of these.
    """
    if not isinstance(of, str):
        return _of_session(of)
    if of == "asyncpg":
        try:
            module = import_module("outbox.testing.asyncpg")
        except ModuleNotFoundError as error:
            msg = advice(["asyncpg"], "asyncpg", 'recorded("asyncpg")')
            raise ModuleNotFoundError(msg, name="asyncpg") from error
        return _closing(module.RecordedAsyncpg(answers))
    if of == "psycopg":
        return _closing(RecordedConnection(answers, autocommit=autocommit))
    if of == "psycopg_async":
        return _closing(RecordedAsyncConnection(answers, autocommit=autocommit))
    msg = f"recorded() knows no connection {of!r}; give one of {', '.join(_KINDS)}, or a session"
    raise UnsupportedConnection(msg)


def _of_session(session: object) -> AbstractContextManager[Any]:
    kind = session.__class__
    if any(base.__module__.startswith("sqlalchemy.") for base in kind.__mro__) and hasattr(
        session, "info"
    ):
        made: AbstractContextManager[Any] = import_module(
            "outbox.testing.sqlalchemy"
        ).recorded_session(session)
        return made
    msg = (
        f"recorded() cannot record on {kind.__module__}.{kind.__qualname__}; give one of "
        f"{', '.join(_KINDS)}, or a Session or AsyncSession of SQLAlchemy"
    )
    raise UnsupportedConnection(msg)


@contextmanager
def _closing(conn: Any) -> Iterator[Any]:  # noqa: ANN401  # one of the recorded connections
    journal = conn.recording.journal
    try:
        yield conn
    except BaseException:
        journal.rollback_all()
        raise
    journal.commit_all()
