"""Switch between Python's threads sooner: the thread that polls waits for those that send."""

import sys

_SECONDS = 0.0005


def take_turns() -> None:
    """
    Let a waiting thread have the interpreter after half a millisecond, not after five.

    This affects the whole process. A busy loop takes the interpreter again as soon as it has
    released it. Each time that another thread returns from Kafka's client with records, it waits
    for that long, several times.
    """
    sys.setswitchinterval(_SECONDS)
