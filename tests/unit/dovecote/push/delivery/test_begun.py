"""A delivery that is begun without a task is noted and judged as one of a task."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from dedup.rules.policies.results import Dead, Done, Early, Result, Retry
from dedup.rules.record import Record
from dovecote.push.delivery.delivery import DeliveryHandler
from dovecote.push.http.client import Client
from dovecote.push.http.connection import SendFailed
from dovecote.push.metrics import Metrics
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.rules.sending.request import Request
from dovecote.push.rules.subscription.subscription import subscription

NOW = 1_700_000_000
WHOLE = (("ce_id", b"e1"), ("ce_source", b"/shop"), ("ce_type", b"Paid"), ("ce_time", b"now"))
PLAIN: dict[str, Any] = {
    "id": "s",
    "topics": ["orders"],
    "endpoint": {"url": "https://example.com/"},
    "format": "cloudevents_binary",
}


class Endpoint:
    """Stands for a client whose requests all come to the same."""

    is_ready = True

    def __init__(self, found: Answer | SendFailed) -> None:
        self._found = found
        self.messages: list[bytes] = []

    def message(self, request: Request, headers: object = (), signed: str = "") -> bytes:
        assert not headers
        return f"{request.target}\r\n{request.lines}{signed}".encode() + request.body

    def begin(self, message: bytes, took: Callable[[Answer | SendFailed], None]) -> bool:
        self.messages.append(message)
        asyncio.get_running_loop().call_soon(took, self._found)
        return self.is_ready

    async def after(self, found: Answer | SendFailed, message: bytes) -> Answer:
        assert message == self.messages[-1]
        if isinstance(found, SendFailed):
            raise found
        return found

    async def send(self, request: Request, headers: object = (), signed: str = "") -> Answer:
        self.messages.append(self.message(request, headers, signed))
        if isinstance(self._found, SendFailed):
            raise self._found
        return self._found


class Book(list[AttemptReport]):
    def attempted(self, attempt: AttemptReport) -> None:
        self.append(attempt)

    def disable(self, id_: str, url: str, reason: str) -> None:
        """Do nothing: its reports say it."""


class Slot:
    """Takes what comes of a record."""

    def __init__(self) -> None:
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def done(self) -> None:
        self.result.set_result(Done())

    def unfinished(self, rest: Callable[[], Awaitable[Result]]) -> None:
        async def await_it() -> None:
            self.result.set_result(await rest())

        self._task = asyncio.get_running_loop().create_task(await_it())


def handler(found: Answer | SendFailed, **more: object) -> tuple[DeliveryHandler, Endpoint, Book]:
    endpoint, book = Endpoint(found), Book()
    made = DeliveryHandler(
        subscription({**PLAIN, **more}), cast("Client", endpoint), Metrics().of("s"), book
    )
    return made, endpoint, book


def record(*headers: tuple[str, bytes]) -> Record:
    return Record("orders", 1, 7, 0, b"k", b"{}", (*WHOLE, *headers))


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (Answer(204), Done),
        (Answer(200, {}, b"thanks"), Done),
        (Answer(503, {"retry-after": "7"}, b"away"), Retry),
        (Answer(400), Dead),
        (Answer(429), Early),
        (Answer(410), Early),
        (SendFailed("no connection"), Retry),
    ],
    ids=lambda each: str(getattr(each, "status", "")),
)
def test_it_comes_to_the_same(found: Answer | SendFailed, result: type[Result]) -> None:
    async def test() -> None:
        (one, at_one, first), (two, at_two, second) = handler(found), handler(found)
        slot = Slot()
        assert one.begin(record(), slot)
        assert one.gate.in_flight == 1
        begun, awaited = await slot.result, await two.deliver(record())
        assert type(begun) is type(awaited) is result
        assert getattr(begun, "error", "") == getattr(awaited, "error", "")
        ends = [
            [each._replace(at=0.0, seconds=0.0) for each in reports] for reports in (first, second)
        ]
        assert ends[0] == ends[1]
        assert len(ends[0]) == 1
        assert one.gate.in_flight == two.gate.in_flight == 0
        assert one.last_minute == two.last_minute
        counts = [(each.delivered, each.failed, each.dead) for each in (one.noted, two.noted)]
        assert counts[0] == counts[1]
        head = [
            each.split(b"webhook-timestamp")[0] for each in (*at_one.messages, *at_two.messages)
        ]
        assert head[0] == head[1]

    asyncio.run(test())


def test_the_handler_takes_a_record_that_is_not_usual() -> None:
    async def test() -> None:
        one, endpoint, book = handler(Answer(204))
        slot = Slot()
        assert not one.begin(record(("dovecote_attempt", b"2")), slot)
        assert not one.begin(Record("orders", 0, 1, 0, None, b"1", ()), slot)
        assert not one.begin(record(("ce_odd", b"\xff")), slot)
        endpoint.is_ready = False
        assert not one.begin(record(), slot)
        assert (one.gate.in_flight, endpoint.messages, book) == (0, [], [])

    asyncio.run(test())


def test_nothing_is_begun_at_an_endpoint_that_has_to_agree_before_or_takes_no_more() -> None:
    async def test() -> None:
        shaken = {"endpoint": {"url": "https://example.com/", "handshake": True}}
        assert not handler(Answer(204), **shaken)[0].begin(record(), Slot())
        one, _, _ = handler(Answer(204), limits={"max_in_flight": 1})
        slots = [Slot(), Slot()]
        assert [one.begin(record(), slot) for slot in slots] == [True, False]
        await slots[0].result
        one.end()
        assert not one.begin(record(), slots[1])

    asyncio.run(test())


def test_what_fails_behind_an_answer_is_the_records_result() -> None:
    async def test() -> None:
        one, _, book = handler(Answer(204))

        def attempted(attempt: AttemptReport) -> None:
            raise ValueError(attempt.event_id)

        book.attempted = attempted  # type: ignore[method-assign]  # a fault of ours
        slot = Slot()
        raised: list[BaseException] = []

        def unfinished(rest: Callable[[], Awaitable[Result]]) -> None:
            async def await_it() -> None:
                try:
                    await rest()
                except ValueError as error:
                    raised.append(error)
                    slot.result.set_result(Done())

            slot._task = asyncio.get_running_loop().create_task(await_it())

        slot.unfinished = unfinished  # type: ignore[method-assign]  # keeps what it raises
        assert one.begin(record(), slot)
        await slot.result
        assert [str(each) for each in raised] == ["e1"]
        assert one.gate.in_flight == 0

    asyncio.run(test())


@pytest.mark.parametrize(
    ("timestamp", "added"), [(95_000, 5), (NOW * 1_000_000, 5), (NOW * 1_000_000_000, 5), (-1, 0)]
)
def test_the_time_before_the_first_request_is_known_in_any_unit(
    timestamp: int, added: float
) -> None:
    numbers = Metrics().of("s")

    numbers.requested(timestamp, 100 if timestamp == 95_000 else NOW + 5)

    assert numbers.added.buckets()[1] == added
