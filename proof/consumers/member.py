"""One consumer under proof: its effects go through the inbox, its deliveries into a file."""

import json
import os
import random
import signal
import sys
import time
from operator import attrgetter
from pathlib import Path

import psycopg

from dedup.consumer import Consumer
from dedup.inbox.claims import InboxClaims
from dedup.inbox.connections import Connections
from dedup.inbox.inbox import Inbox
from dedup.rules.policies.results import Done, Result, Retry
from dedup.rules.record import Record
from dedup.settings.consumer import ConsumerSettings
from outbox import envelope

_FAILING_SHARE = 0.01


def main() -> None:
    """Consume until SIGTERM, with the settings in the file that is the only argument."""
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    chance = random.Random(told["member"])  # noqa: S311  # to be repeated, no secret

    def effect(record: Record, tx: psycopg.Connection) -> Result:
        event = record.event
        tx.execute(
            "INSERT INTO effects (topic, key, number) VALUES (%s, %s, %s)",
            [event.topic, event.key, int(event.value_bytes() or b"")],
        )
        time.sleep(chance.random() * told["work"])
        # After the insert: a failed attempt must have left nothing.
        return Retry("by chance") if chance.random() < _FAILING_SHARE else Done()

    dsn, group = told["dsn"], told["settings"]["group"]
    once = Inbox(group).once(
        effect,
        Connections(dsn).begin,
        identity=attrgetter("identity"),
        claim=attrgetter("claim"),
    )

    def handle(record: Record) -> Result:
        if envelope.delivery(record).attempt == 1:
            line = f"{time.time_ns()} {record.topic} {record.partition} {record.offset}\n"
            os.write(notes, line.encode())
        return once(record)

    consumer = Consumer(
        ConsumerSettings.model_validate(told["settings"]),
        handle,
        takes_records=True,
        claims=InboxClaims(dsn, group),
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    # From now on it can be asked to leave; the crew waits for this file before it asks.
    notes = os.open(told["deliveries"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    consumer.run()


if __name__ == "__main__":
    main()
