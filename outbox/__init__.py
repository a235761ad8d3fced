"""Write events in your own Postgres transaction; they commit, or vanish, with your rows."""

from typing import TYPE_CHECKING

from outbox.errors import (
    BadSettings,
    DovecoteError,
    InvalidEvent,
    NotAccepted,
    NotAllowed,
    NoTransaction,
    OpenTransaction,
    ProducerClosed,
    SchemaMissing,
    SchemaTooNew,
    UnsupportedConnection,
)
from outbox.event import Event, Limits
from outbox.lazily import lazy
from outbox.write import write, write_async
from outbox.writing.declared import as_event, event

if TYPE_CHECKING:
    from outbox.producer.options import Counted, Options
    from outbox.producer.producer import Producer
    from outbox.waiting.published import published, published_async
    from outbox.waiting.results import Parked, Published, TimedOut

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
    "OpenTransaction",
    "Options",
    "Parked",
    "Producer",
    "ProducerClosed",
    "Published",
    "SchemaMissing",
    "SchemaTooNew",
    "TimedOut",
    "UnsupportedConnection",
    "as_event",
    "event",
    "published",
    "published_async",
    "write",
    "write_async",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Counted": "outbox.producer.options",
            "Options": "outbox.producer.options",
            "Parked": "outbox.waiting.results",
            "Producer": "outbox.producer.producer",
            "Published": "outbox.waiting.results",
            "TimedOut": "outbox.waiting.results",
            "published": "outbox.waiting.published",
            "published_async": "outbox.waiting.published",
        },
        extra="producer",
    )
