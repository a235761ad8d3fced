"""Make the publisher that the settings ask for."""

import threading
from collections.abc import Callable

from relay.isolation import Isolation
from relay.publisher import IdempotentPublisher, Publisher, TransactionalPublisher
from relay.settings import RelaySettings

# After a stop the batch in flight may still be confirmed for so long.
_GRACE = 5.0


def make_publisher(
    settings: RelaySettings,
    isolation: Isolation,
    stop: threading.Event,
    slow: Callable[[str], None],
) -> Publisher:
    """Return a publisher that bundles events as `isolation` says, not opened yet."""
    properties = settings.producer_properties()
    kind = TransactionalPublisher if settings.mode == "exactly_once" else IdempotentPublisher
    return kind(
        {**properties, **isolation.properties(str(properties["batch.size"]))},
        settings.progress_topic,
        timeout=settings.transaction_timeout.total_seconds(),
        grace=_GRACE,
        stopped=stop.is_set,
        slow=slow,
    )
