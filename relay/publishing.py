"""Make the publisher that the settings ask for, and measure how its batches fare."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from relay.errors import Outage
from relay.kafka.publisher import (
    IdempotentPublisher,
    Publisher,
    PublisherInTurn,
    TransactionalPublisher,
)
from relay.rules.isolation import Isolation
from relay.rules.pace import Pace
from relay.rules.topics import Ask, no_answer
from relay.settings import RelaySettings

T = TypeVar("T", TransactionalPublisher, IdempotentPublisher)

# After a stop, the batch in flight may still be confirmed for this long.
_GRACE = 5.0


def make_publisher(
    settings: RelaySettings,
    outbox: str,
    isolation: Isolation,
    stop: threading.Event,
    *,
    slow: Callable[[str], None],
    require_role: Callable[[], object],
    ask: Ask = no_answer,
) -> Publisher:
    """
    Return a publisher that bundles events by `isolation`, not opened yet.

    `outbox` is the outbox's own id. Where nothing fences, `require_role` is called before progress
    is written; it raises if another relay has the role.
    """

    def make(kind: type[T], turn: int = 0) -> T:
        properties = settings.producer_properties(outbox, turn)
        return kind(
            {**properties, **isolation.properties(str(properties["batch.size"]))},
            settings.progress_topic,
            timeout=settings.transaction_timeout.total_seconds(),
            grace=_GRACE,
            stopped=stop.is_set,
            slow=slow,
            ask=ask,
            require_role=require_role,
        )

    if settings.mode == "at_least_once":
        return make(IdempotentPublisher)
    return PublisherInTurn([make(TransactionalPublisher, turn) for turn in (0, 1)])


@contextmanager
def paced(pace: Pace, size: Callable[[], int]) -> Iterator[None]:
    """Tell `pace` how a batch fared; its `size` in bytes is known when it is over."""
    began = time.monotonic()
    try:
        yield
    except Outage:
        pace.failed(size())
        raise
    pace.confirmed(size(), time.monotonic() - began)
