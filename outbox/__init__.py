"""Write events in your own Postgres transaction; they commit, or vanish, with your rows."""

from outbox.errors import (
    BadSettings,
    DovecoteError,
    InvalidEvent,
    NotAllowed,
    NoTransaction,
    SchemaMissing,
    SchemaTooNew,
    UnsupportedConnection,
)
from outbox.event import Event, Limits
from outbox.write import write, write_async

__all__ = [
    "BadSettings",
    "DovecoteError",
    "Event",
    "InvalidEvent",
    "Limits",
    "NoTransaction",
    "NotAllowed",
    "SchemaMissing",
    "SchemaTooNew",
    "UnsupportedConnection",
    "write",
    "write_async",
]
