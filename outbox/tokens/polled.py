"""A consumer that takes new credentials between two polls."""

from collections import deque
from typing import Any

from confluent_kafka import Consumer, Message


class PolledConsumer(Consumer):
    """
    A consumer of which one thread polls, and that another one gives new credentials.

    The client lets one thread in at a time. A thread that waits outside looks now and then whether
    it is free, so that it may wait for ever while another one polls again and again
    (confluent_kafka 2.16). So the thread that polls hands them over, before it polls again.
    """

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401  # as the client's
        super().__init__(*given, **named)
        self._next: deque[tuple[str, str]] = deque(maxlen=1)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these for connections that are made after the next poll has begun."""
        self._next.append((username, password))

    def consume(self, *given: Any, **named: Any) -> list[Message]:  # noqa: ANN401  # as above
        self._hand_over()
        return super().consume(*given, **named)

    def poll(self, *given: Any, **named: Any) -> Message | None:  # noqa: ANN401  # as above
        self._hand_over()
        return super().poll(*given, **named)

    def _hand_over(self) -> None:
        if self._next:
            super().set_sasl_credentials(*self._next.pop())
