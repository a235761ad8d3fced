"""Count the clients of Kafka that this process has, and see that none is left."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.waiting import until


def clients() -> int:
    """Return how many clients of librdkafka run here; each has one thread of this name."""
    found = 0
    for thread in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has ended
            found += thread.read_text(encoding="utf-8") == "rdk:main\n"
    return found


@contextmanager
def no_clients_left() -> Iterator[None]:
    """
    Fail if clients outlive the block: they would ask for its servers until the process ends.

    A client ends with its last reference, and garbage may hold one.
    """
    before = clients()
    yield
    until(lambda: gc.collect() >= 0 and clients() <= before, within=10, what="all clients end")
