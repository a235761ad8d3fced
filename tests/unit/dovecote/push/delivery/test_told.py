"""An endpoint's words stay within their line of the log, and show no secret."""

import asyncio
import logging
from typing import cast

import pytest

from dedup.rules.record import Record
from dovecote.push.delivery.delivery import DeliveryHandler
from dovecote.push.http.client import Client
from dovecote.push.http.connection import SendFailed
from dovecote.push.metrics import Metrics
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.rules.subscription.subscription import Subscription, subscription

SECRET = "s3cr3t-t0ken"  # noqa: S105  # nobody's
ODD = f"first\nWARNING forged\r\x1b[2J\x9b1m\u202e {SECRET}"


class Endpoint:
    def __init__(self, answer: Answer | SendFailed) -> None:
        self._answer = answer

    async def send(self, *_: object) -> Answer:
        if isinstance(self._answer, SendFailed):
            raise self._answer
        return self._answer

    async def options(self, *_: object) -> Answer:
        return await self.send()


class Noted(list[AttemptReport]):
    def attempted(self, attempt: AttemptReport) -> None:
        self.append(attempt)

    def disable(self, id_: str, url: str, reason: str) -> None:
        """Do nothing: no subscription is ever disabled here."""


def subscribed(*, handshake: bool) -> Subscription:
    headers = {"Authorization": f"Bearer {SECRET}"}
    endpoint = {"url": "https://example.com/", "headers": headers, "handshake": handshake}
    return subscription({"id": "s", "topics": ["orders"], "endpoint": endpoint})


@pytest.mark.parametrize(
    ("answer", "handshake"),
    [
        (Answer(500, {}, ODD.encode()), False),
        (SendFailed(ODD), False),
        (SendFailed(ODD), True),
        (Answer(200, {"webhook-allowed-origin": ODD}), True),
        (Answer(200, {"webhook-allowed-origin": "*", "webhook-allowed-rate": ODD}), True),
    ],
)
def test_what_an_endpoint_says_forges_no_line_and_steers_no_terminal(
    answer: Answer | SendFailed, caplog: pytest.LogCaptureFixture, *, handshake: bool
) -> None:
    handler = DeliveryHandler(
        subscribed(handshake=handshake),
        cast("Client", Endpoint(answer)),
        Metrics().of("s"),
        Noted(),
    )

    async def deliver() -> None:
        for offset in range(20):
            await handler.deliver(Record("orders", 0, offset, 0, b"k", b"{}", ()))
            if handler.trouble:
                return

    with caplog.at_level(logging.WARNING, "dovecote.push"):
        asyncio.run(deliver())
    assert handler.trouble
    for said in (handler.trouble, *caplog.messages):
        assert said.isprintable()
        assert SECRET not in said
        assert "********" in said or "first" not in said


@pytest.mark.parametrize(("status", "rate"), [(200, 0.97), (429, 0.97), (503, None), (403, None)])
def test_the_rate_that_an_error_page_names_is_not_the_endpoints(
    status: int, rate: float | None
) -> None:
    answer = Answer(status, {"ratelimit-policy": "1;w=1"})
    handler = DeliveryHandler(
        subscribed(handshake=False), cast("Client", Endpoint(answer)), Metrics().of("s"), Noted()
    )
    asyncio.run(handler.deliver(Record("orders", 0, 0, 0, b"k", b"{}", ())))
    assert handler.gate.pace.found == (None if rate is None else pytest.approx(rate))
