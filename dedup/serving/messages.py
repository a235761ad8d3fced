"""Make records of the messages that the client has polled, where they are handled."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dedup.rules.history import believed
from dedup.rules.record import Record
from outbox.kafka import headers_of

Message: TypeAlias = Any
"""A message of confluent_kafka, whose own types allow for one that was never sent."""

Reads: TypeAlias = Callable[[Sequence[Message]], list[Record]]
"""Makes the records of messages of one partition, in the same order."""

_OF_HEADER = 150
"""About the bytes that Python takes for a header besides its value."""

_make = tuple.__new__


def reads(record: type[Record], topic: str, partition: int, *, retry: bool) -> Reads:
    """
    Return what makes records of a class from messages of a partition; any thread may call it.

    `retry` has the meaning that it has for `believed`.

    The client makes three objects for each header. Made when a message is polled, they fall out of
    the processor's cache while it is in line, and to read and to free them takes longer than the
    handler. So the thread that handles a message makes them.
    """

    def read(messages: Sequence[Message]) -> list[Record]:
        # Builds what the class's own constructor builds, which takes four times as long.
        return [
            _make(
                record,
                (
                    topic,
                    partition,
                    each.offset(),
                    each.timestamp()[1],
                    each.key(),
                    each.value(),
                    believed(headers_of(each), retry=retry),
                ),
            )
            for each in messages
        ]

    return read


def weight_of(message: Message) -> int:
    """Return about the bytes that Python takes for the headers of a message."""
    headers = headers_of(message)
    return len(headers) * _OF_HEADER + sum(len(value) for _, value in headers if value)
