"""
Find the adapter of a connection by its class, and write with it.

The class tells which library the connection comes from; only that library's adapter is imported,
so nothing is loaded that the caller does not use already. A proxy, such as a tracer's, has a type
of its own, and the connection's class as `__class__`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from outbox.errors import UnsupportedConnection
from outbox.writing.append import Append

_LIBRARIES = frozenset({"psycopg", "sqlalchemy", "django", "asyncpg"})
_ANY = (
    "give a connection of psycopg 3 or asyncpg, a session or connection of SQLAlchemy, "
    "or a connection of Django"
)


class Way(NamedTuple):
    """How events are written on the connections of one class."""

    write: Callable[[Any, Append], Any]
    awaits: bool


# Weak, since a library may make a class for each session: SQLAlchemy's `sessionmaker` does.
_ways: WeakKeyDictionary[type, Way] = WeakKeyDictionary()


def write(conn: object, append: Append) -> None:
    """
    Append on a synchronous connection.

    Raises:
        UnsupportedConnection: `conn` is not one; the message says what to do instead.
    """
    kind = conn.__class__
    way = _ways.get(kind) or _find(kind)
    if way.awaits:
        msg = f"{_name(kind)} has to be awaited: `await write_async(conn, …)`"
        raise UnsupportedConnection(msg)
    way.write(conn, append)


async def write_async(conn: object, append: Append) -> None:
    """
    Append on a connection that has to be awaited.

    Raises:
        UnsupportedConnection: `conn` is not one; the message says what to do instead.
    """
    kind = conn.__class__
    way = _ways.get(kind) or _find(kind)
    if not way.awaits:
        msg = f"{_name(kind)} is not awaited: `write(conn, …)`, without `await`"
        raise UnsupportedConnection(msg)
    await way.write(conn, append)


def register(kind: type, way: Way) -> None:
    """Set how events are written on objects of a class that is ours, as those for tests are."""
    _ways[kind] = way


def _find(kind: type) -> Way:
    """
    Return the way for a class, which may be the library's own or derived from one of its classes.
    """
    library = next((name for base in kind.__mro__ if (name := _root(base)) in _LIBRARIES), None)
    if library is None:
        msg = f"events cannot be written on {_name(kind)}; {_ANY}"
        raise UnsupportedConnection(msg)
    adapter = import_module(f"{__package__}.{library}")
    found: Way | None = adapter.way(kind)
    if found is None:
        msg = f"events cannot be written on {_name(kind)}; {adapter.ADVICE}"
        raise UnsupportedConnection(msg)
    _ways[kind] = found
    return found


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
