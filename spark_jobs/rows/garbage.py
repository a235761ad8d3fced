"""Limit how often a Spark worker looks for garbage in cycles."""

import gc
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

_WORKER = "SPARK_REUSE_WORKER"
"""The variable that Spark sets for workers that will have more than one task."""
# The number of tasks that may leave dead cycles behind before they are collected.
_TASKS_BETWEEN = 50
_tasks = itertools.count(1)


@contextmanager
def rarely_collecting() -> Iterator[None]:
    """
    Look for garbage in cycles less often while a task works.

    A batch is a million objects without a cycle. Examining them again and again takes as long as
    making them.
    """
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        spare()


def collect_rarely() -> None:
    """Make this process look for garbage in cycles less often from now on."""
    gc.set_threshold(500_000, 20, 50)


def spare() -> None:
    """
    Exclude present objects from the garbage collection that follows a task.

    A PySpark worker examines all of its objects after each task. Its modules alone take 70 ms,
    more than a small batch, and the states that it keeps take as long again.
    """
    if _WORKER not in os.environ:
        return  # the worker gets no other task, so nothing is collected
    gc.freeze() if next(_tasks) % _TASKS_BETWEEN else gc.unfreeze()
