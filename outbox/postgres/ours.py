"""
Keep our statements as they are on a connection that the caller has configured.

An application may write and read types its own way, on one connection or on all: `list` as jsonb,
`bytes` compressed, rows as dictionaries. Our statements mean Postgres' own types, in tuples.
"""

# ruff: noqa: ANN401 # these take and return whatever the driver's own do
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import (
    AsyncConnection,
    AsyncCursor,
    Connection,
    Cursor,
    ProgrammingError,
    postgres,
)
from psycopg.abc import AdaptContext, Buffer, DumperKey
from psycopg.abc import Dumper as AnyDumper
from psycopg.adapt import AdaptersMap, Dumper, PyFormat, Transformer
from psycopg.pq import Format
from psycopg.rows import TupleRow, tuple_row
from psycopg.types import TypesRegistry, array


def _as_the_driver_began() -> AdaptersMap:
    # Not a copy of `psycopg.adapters`: the application may have changed it before it imported us.
    adapters = AdaptersMap(types=TypesRegistry())
    postgres.register_default_types(adapters.types)
    postgres.register_default_adapters(adapters)
    array.register_all_arrays(adapters)
    return adapters


ADAPTERS = _as_the_driver_began()
"""The driver's own adapters; as `context`, those of a connection that is ours alone."""


class _Cursor(Cursor[TupleRow]):
    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class _AsyncCursor(AsyncCursor[TupleRow]):
    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


def cursor(conn: Connection[Any]) -> Cursor[TupleRow]:
    """Return a cursor that knows nothing of the caller's adapters, rows and kinds of cursors."""
    return _Cursor(conn, row_factory=tuple_row)


def async_cursor(conn: AsyncConnection[Any]) -> AsyncCursor[TupleRow]:
    """As `cursor`, on an async connection."""
    return _AsyncCursor(conn, row_factory=tuple_row)


class Ours:
    """A parameter of our statement, for a cursor that another library has made."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def accept(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Have the connection's own cursors write `Ours` as we mean it; nothing else changes."""
    for dumper in (_BinaryDumper, _Dumper):
        try:
            known = conn.adapters.get_dumper(Ours, PyFormat.from_pq(dumper.format))
        except ProgrammingError:
            known = None
        if known is not dumper:
            conn.adapters.register_dumper(Ours, dumper)


@contextmanager
def tuples(conn: Connection[Any] | AsyncConnection[Any]) -> Iterator[None]:
    """Have cursors that are made within the block return tuples."""
    before = conn.row_factory
    if before is tuple_row:
        yield
        return
    conn.row_factory = tuple_row
    try:
        yield
    finally:
        conn.row_factory = before


class _Context:
    adapters = ADAPTERS

    def __init__(self, connection: Any) -> None:
        self.connection = connection


class _Dumper(Dumper):
    """Writes a parameter with the driver's own dumper for its value."""

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self._known = Transformer(_Context(self.connection))

    def get_key(self, obj: Any, format: PyFormat) -> DumperKey:  # noqa: A002  # the driver's name
        # One for each kind of value; a list's depends on its elements.
        return Ours, self._known.get_dumper(obj.value, format)  # type: ignore[return-value]  # any key will do

    def upgrade(self, obj: Any, format: PyFormat) -> Dumper:  # noqa: A002  # the driver's name
        return _Delegate(self._known.get_dumper(obj.value, format))

    def dump(self, obj: Any) -> "Buffer | None":
        return self._known.get_dumper(obj.value, PyFormat.from_pq(self.format)).dump(obj.value)


class _BinaryDumper(_Dumper):
    format = Format.BINARY


class _Delegate(Dumper):
    """The driver's dumper, for a value that is wrapped."""

    def __init__(self, dumper: AnyDumper) -> None:
        super().__init__(Ours)
        self._dumper = dumper
        self.oid, self.format = dumper.oid, dumper.format

    def dump(self, obj: Any) -> "Buffer | None":
        return self._dumper.dump(obj.value)

    def quote(self, obj: Any) -> Buffer:
        return self._dumper.quote(obj.value)
