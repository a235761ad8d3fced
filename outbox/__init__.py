"""Write events in your own Postgres transaction; they commit, or vanish, with your rows."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from outbox.producer.options import Counted, Options
    from outbox.producer.producer import Producer

__all__ = [
    "BadSettings",
    "Counted",
    "DovecoteError",
    "Event",
    "InvalidEvent",
    "Limits",
    "NoTransaction",
    "NotAccepted",
    "NotAllowed",
    "Options",
    "Producer",
    "ProducerClosed",
    "SchemaMissing",
    "SchemaTooNew",
    "UnsupportedConnection",
    "write",
    "write_async",
]

_LAZY = {
    "Counted": "outbox.producer.options",
    "Options": "outbox.producer.options",
    "Producer": "outbox.producer.producer",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever is asked for
    """Import a name when it is asked for: not everybody needs Kafka or Postgres."""
    if (module := _LAZY.get(name)) is not None:
        return getattr(import_module(module), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
