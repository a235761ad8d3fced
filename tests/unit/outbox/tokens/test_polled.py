"""New credentials wait for the thread that polls, and nobody waits for it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from outbox.tokens.polled import PolledConsumer
from tests.support.waiting import patient

PROPERTIES = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "shop",
    "sasl.password": "old",
}


class Recording(Consumer):
    """Records which thread gives the client new credentials."""

    given: list[tuple[str, str, int]]

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.given.append((username, password, threading.get_ident()))


class Polled(PolledConsumer, Recording):
    """Hands them to the recording client."""


@pytest.mark.parametrize("ask", [lambda each: each.consume(1, 0.01), lambda each: each.poll(0.01)])
def test_the_newest_are_handed_over_by_the_thread_that_polls(ask: Callable[[Any], Any]) -> None:
    consumer = Polled(PROPERTIES)
    consumer.given = []
    try:
        for password in ("new", "newest"):
            other = threading.Thread(target=consumer.set_sasl_credentials, args=("shop", password))
            other.start()
            other.join(patient(10))
        assert consumer.given == []
        ask(consumer)
        ask(consumer)
        assert consumer.given == [("shop", "newest", threading.get_ident())]
    finally:
        consumer.close()


def test_nobody_waits_for_a_poll_that_is_under_way() -> None:
    consumer, stop = PolledConsumer(PROPERTIES), threading.Event()

    def run() -> None:
        while not stop.is_set():
            consumer.consume(100, 0.5)

    polling = threading.Thread(target=run)
    polling.start()
    try:
        for number in range(100):
            consumer.set_sasl_credentials("shop", str(number))
        assert polling.is_alive()
    finally:
        stop.set()
        polling.join(patient(10))
        consumer.close()
