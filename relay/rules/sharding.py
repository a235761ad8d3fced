"""
Which shard an event belongs to, and the names of shards.

Each process that reads an outbox must come to the same answer, and so must Postgres (`own` in
`relay.postgres.capture.window`): the function never changes. Kafka chooses partitions by another
one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

SHARD = ".shard-"
"""Stands between an outbox's name and a shard's number; no outbox's name ends like that."""


def shard_of(key: bytes | None, event_id: str, shards: int) -> int:
    """
    Return the shard of an event: by its key, or by its id if it has no key.

    All events of one key are in one shard, which keeps their order; events without a key have no
    order.
    """
    what = event_id.encode() if key is None else key
    return int.from_bytes(sha256(what).digest()[:4]) % shards


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of an outbox, published by one relay at a time."""

    outbox: str
    number: int = 0
    of: int = 1

    @property
    def name(self) -> str:
        """The shard's name; for an outbox in one piece, the outbox's own name."""
        return self.outbox if self.of == 1 else f"{self.outbox}{SHARD}{self.number}"

    def __str__(self) -> str:
        """Return it in the form for a log message."""
        if self.of == 1:
            return f"outbox {self.outbox!r}"
        return f"outbox {self.outbox!r}, shard {self.number} of {self.of}"


def divided(outbox: str, shards: int) -> Sequence[Shard]:
    """Return all shards of an outbox."""
    return [Shard(outbox, number, shards) for number in range(shards)]
