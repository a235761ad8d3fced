"""Write events in your own Postgres transaction; they commit, or vanish, with your rows."""

from importlib import import_module
from typing import TYPE_CHECKING

from outbox.errors import (
    BadSettings,
    DovecoteError,
    InvalidEvent,
    NotAccepted,
    NotAllowed,
    NoTransaction,
    ProducerClosed,
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
    "NotAccepted",
    "NotAllowed",
    "ProducerClosed",
    "SchemaMissing",
    "SchemaTooNew",
    "UnsupportedConnection",
    "write",
    "write_async",
]

if not TYPE_CHECKING:  # a checker would then find any name here; it knows outbox.producer

    def __getattr__(name: str) -> object:
        """Return `Producer` on first use, because it loads a Kafka client."""
        if name == "Producer":
            return import_module("outbox.producer").Producer
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
