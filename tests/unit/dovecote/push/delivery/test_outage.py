"""An endpoint answers 401 for ten minutes of made-up time: no record is lost."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from dedup.retries.backoff import Failure
from dedup.rules.policies.results import Done, Early, Retry
from dedup.rules.record import Record
from dovecote.push.delivery import shape
from dovecote.push.delivery.delivery import DeliveryHandler
from dovecote.push.http.client import Client
from dovecote.push.metrics import Metrics
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.rules.sending.request import Request
from dovecote.push.rules.subscription.subscription import subscription
from outbox import envelope

OUTAGE = 600.0
KEYS, PER_KEY = 40, 25
TROUBLE_WITHIN = 5.0
SUBSCRIPTION = subscription(
    {"id": "s", "topics": ["orders"], "endpoint": {"url": "https://example.com/"}}
)


class MadeUpTime(asyncio.SelectorEventLoop):
    """A loop that does not wait: its clock jumps to what comes next."""

    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__(selectors.DefaultSelector())
        wait = self._selector.select  # type: ignore[attr-defined]  # asyncio's own

        def select(timeout: float | None) -> object:
            self.now += timeout or 0.0
            return wait(0)

        self._selector.select = select  # type: ignore[attr-defined]  # asyncio's own

    def time(self) -> float:
        return self.now


class Endpoint:
    """Answers a status until a moment, and 204 after that."""

    def __init__(self, loop: MadeUpTime, status: int, until: float) -> None:
        self._loop, self._status, self._until = loop, status, until
        self.taken: list[str] = []
        self.asked = 0

    async def send(self, request: Request, *_: object) -> Answer:
        await asyncio.sleep(0.005)
        self.asked += 1
        if self._loop.now < self._until:
            return Answer(self._status, {}, b"the token has expired")
        self.taken.append(request.id)
        return Answer(204)


class Forgetful:
    """A journal that keeps no attempts."""

    def attempted(self, attempt: AttemptReport) -> None:
        """Keep nothing."""

    def disable(self, id_: str, url: str, reason: str) -> None:
        """Do nothing: no endpoint answers 410 here."""


async def delivered(handler: DeliveryHandler, key: int, dead: list[str]) -> None:
    """Hand over the records of a key one after the other, as a consumer does."""
    patience = shape.plan(SUBSCRIPTION).patience
    for number in range(PER_KEY):
        attempt, id_ = 1, f"{key}-{number}"
        while True:
            headers = (("ce_id", id_.encode()), (envelope.ATTEMPT, b"%d" % attempt))
            record = Record("orders", 0, key * PER_KEY + number, 0, b"%d" % key, b"1", headers)
            result = await handler.deliver(record)
            if isinstance(result, Done):
                break
            assert isinstance(result, Retry)
            after = result.after
            if not isinstance(result, Early):  # that is no failed attempt
                failure = Failure(identity=record.identity, attempt=attempt)
                after = after or patience.after(failure)
                attempt += 1
            if after is None:
                dead.append(id_)
                break
            await asyncio.sleep(after.total_seconds())


async def named(handler: DeliveryHandler, loop: MadeUpTime, status: int) -> float:
    """Return after how many seconds `trouble` names a status."""
    began = loop.now
    while f"{status} " not in handler.trouble:  # noqa: ASYNC110  # time is made up
        await asyncio.sleep(0.1)
    return loop.now - began


def within(test: Coroutine[Any, Any, None], loop: MadeUpTime) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(test)


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_ten_minutes_of_refusals_lose_nothing_and_keep_the_order(status: int) -> None:
    loop = MadeUpTime()
    back = loop.now + OUTAGE
    endpoint, dead = Endpoint(loop, status, back), list[str]()

    async def test() -> None:
        handler = DeliveryHandler(
            SUBSCRIPTION,
            cast("Client", endpoint),
            Metrics().of("s"),
            Forgetful(),
            clock=loop.time,
        )
        keys = [asyncio.create_task(delivered(handler, key, dead)) for key in range(KEYS)]
        assert await named(handler, loop, status) < TROUBLE_WITHIN
        await asyncio.sleep(back - loop.now - 1.0)
        assert f"{status} " in handler.trouble
        assert handler.circuit == "open"
        asked = endpoint.asked
        await asyncio.gather(*keys)
        assert loop.now - back < 120.0
        assert handler.trouble == ""
        assert asked < 200

    within(test(), loop)
    assert dead == []
    assert len(endpoint.taken) == len(set(endpoint.taken)) == KEYS * PER_KEY
    for key in range(KEYS):
        of_key = [each for each in endpoint.taken if each.startswith(f"{key}-")]
        assert of_key == [f"{key}-{number}@orders" for number in range(PER_KEY)]
