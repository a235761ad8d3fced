"""Have Python's threads take turns sooner: who polls for records waits for who sends them."""

import sys

_SECONDS = 0.0005


def take_turns() -> None:
    """
    Let a thread that wants the interpreter have it after half a millisecond, not after five.

    For the process as a whole. A busy loop takes the interpreter again as soon as it has let go of
    it, and whoever comes back from Kafka's client with records waits that long, several times.
    """
    sys.setswitchinterval(_SECONDS)
