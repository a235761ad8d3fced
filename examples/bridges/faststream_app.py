"""A FastStream subscriber whose effects happen once, by Dovecote's inbox."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream import AckPolicy
from faststream.confluent import KafkaBroker
from faststream.confluent.annotations import KafkaMessage
from psycopg import AsyncConnection

from dedup import Done, Inbox, Result, Skip
from outbox import Event
from outbox.envelope import Record, decode
from outbox.kafka import fields_of

GROUP = "receipts"


async def receipt(event: Event[Any], tx: AsyncConnection) -> Result:
    """Handle an event in the transaction that remembers it."""
    order = json.loads(event.value)["order"]
    await tx.execute("INSERT INTO receipts VALUES (%s)", [order])
    return Done()


def broker(bootstrap: str, dsn: str, topic: str, *, group: str = GROUP) -> KafkaBroker:
    """Return the broker, which `FastStream(broker)` runs."""

    @asynccontextmanager
    async def begin() -> AsyncIterator[AsyncConnection]:
        async with await AsyncConnection.connect(dsn) as tx:  # or a pool's `connection`
            yield tx

    made = KafkaBroker(bootstrap, logger=None)
    once = Inbox(GROUP).once_async(receipt, begin)

    @made.subscriber(
        topic,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",  # not what a relay has aborted
        ack_policy=AckPolicy.NACK_ON_ERROR,  # read again what was not handled
    )
    async def receipts(message: KafkaMessage) -> None:
        result = await once(decode(Record(*fields_of(message.raw_message))))
        if not isinstance(result, Done | Skip):
            # FastStream knows no other result; an exception makes it read the record again.
            msg = f"the handler said {result}"
            raise RuntimeError(msg)  # noqa: TRY004  # of its value

    return made
