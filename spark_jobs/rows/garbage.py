"""How often a worker of Spark looks for garbage in cycles."""

import gc
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

_WORKER = "SPARK_REUSE_WORKER"
"""What Spark tells workers that are to have more than one task."""
# So many tasks may leave dead cycles behind before somebody looks for them.
_TASKS_BETWEEN = 50
_tasks = itertools.count(1)


@contextmanager
def rarely_collecting() -> Iterator[None]:
    """
    Have Python look for garbage in cycles less often, while a task works.

    A batch is a million objects without a cycle; looking through them time and again takes as
    long as making them.
    """
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        spare()


def collect_rarely() -> None:
    """Have this process look for garbage in cycles less often, for good."""
    gc.set_threshold(500_000, 20, 50)


def spare() -> None:
    """
    Have the search for garbage that follows a task leave out what is there now.

    A worker of PySpark goes through all of its objects after each task. Its modules alone take
    70 ms, more than a small batch has to do, and the states that it keeps as much again.
    """
    if _WORKER not in os.environ:
        return  # no worker that has another task after this: nobody looks
    gc.freeze() if next(_tasks) % _TASKS_BETWEEN else gc.unfreeze()
