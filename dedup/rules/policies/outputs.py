"""The record that an output of a handler becomes."""

from dataclasses import replace
from typing import TypeAlias

from dedup.rules.policies.results import Keep, Output
from outbox import envelope
from outbox.envelope import Pair
from outbox.event import Event, headers_of_output
from outbox.tracing.headers import TRACESTATE

Encoded: TypeAlias = tuple[bytes | None, bytes | None, list[Pair]]
"""Key, value and headers of an output."""


def encode_output(event: Event, number: int, output: Output) -> Encoded:
    """
    Return the record of a handler's `output`, the `number`th of its event.

    It has the event's envelope and trace context. Its id is its own, and the same each time.
    Headers of the output itself replace the envelope's.

    Raises:
        InvalidEvent: the value or a header cannot be written.
    """
    told = isinstance(output.value, bytes)  # only the event's own type describes bytes
    key, value, headers = envelope.encode(
        replace(
            event,
            id=f"{event.id}.{number}",
            key=event.key if isinstance(output.key, Keep) else output.key,
            value=output.value,
            content_type=event.content_type if told else None,
            headers=[pair for pair in event.headers if pair[0] == TRACESTATE],
        )
    )
    own = headers_of_output(output.headers)
    names = {name for name, _ in own}
    return key, value, [*(pair for pair in headers if pair[0] not in names), *own]
