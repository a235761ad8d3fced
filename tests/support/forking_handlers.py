"""Fork in a handler, and let the child leave it; run as a program."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from dedup.inbox.connections import Connections
from dedup.inbox.inbox import Inbox
from dedup.inbox.together import together
from dedup.serving.handlers import of_records
from dedup.serving.ways_out import guarded
from outbox.event import Event

EVENT = Event(topic="orders", type="Forked", key="k", value=None)


def forked(how: str) -> int:
    """Return the status of a child, which raises or, in time, returns itself: -1."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        if how == "exits":
            sys.exit(3)
        if how == "says":
            sys.exit("enough")
        if how == "raises":
            msg = "of the child"
            raise ValueError(msg)
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_transaction(how: str, form: str, dsn: str) -> None:
    def handle(_: object, tx: Any) -> None:  # psycopg's connection
        tx.execute("INSERT INTO effects VALUES ('before')")
        if (status := forked(how)) >= 0:
            tx.execute("INSERT INTO effects VALUES (%s)", [f"child {status}"])

    with closing(Connections(dsn)) as connections:
        if form == "once":
            Inbox("forking").once(handle, connections.begin)(EVENT)
        else:
            together(Inbox("forking"), handle, connections.begin)([EVENT])


def without(how: str, form: str) -> None:
    def handle(_: object) -> None:
        if (status := forked(how)) >= 0:
            sys.stdout.write(f"child {status}\n")

    async def handle_awaited(_: object) -> None:
        handle(_)

    def wrapped(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return guarded(handler) if form == "guarded" else of_records(handler, lambda _: EVENT)

    wrapped(handle)(None)
    asyncio.run(wrapped(handle_awaited)(None))
    sys.stdout.write("goes on\n")


if __name__ == "__main__":
    how, form, *where = sys.argv[1:]
    if where:
        in_transaction(how, form, *where)
    else:
        without(how, form)
