"""Decide which requests may be sent, which wait, and which are sent away."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dovecote.push.delivery.gate import Gate, Passed
from dovecote.push.delivery.windows import Windows
from dovecote.push.rules.pacing.breaker import Breaker
from dovecote.push.rules.pacing.limits import Concurrency
from dovecote.push.rules.pacing.pace import Pace
from dovecote.push.rules.pacing.window import Window
from tests.support.waiting import patient


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(patient(20)):
            await test()

    asyncio.run(within())


def gate(most: int = 2, *, threshold: int = 3, rate: float | None = None) -> Gate:
    return Gate(Breaker(threshold=threshold, base=0.05), Concurrency(most), Pace(rate))


async def enter(of: Gate) -> Passed:
    while not isinstance(passed := await of.enter(), Passed):  # noqa: ASYNC110  # as a lane does
        await asyncio.sleep(passed)
    return passed


def test_no_more_are_in_than_may_and_who_waits_comes_in_in_turn() -> None:
    async def test() -> None:
        door, came = gate(2), []

        async def visit(number: int) -> None:
            passed = await enter(door)
            came.append(number)
            assert door.in_flight <= 2
            await asyncio.sleep(0.001)
            door.leave(passed, "success")

        await asyncio.gather(*(visit(number) for number in range(20)))
        assert came == list(range(20))
        assert door.in_flight == 0

    run(test)


def test_an_open_circuit_sends_one_probe_and_its_success_lets_the_others_in() -> None:
    async def test() -> None:
        door = gate(10, threshold=1)
        assert door.leave(await enter(door), "overload")
        began = asyncio.get_running_loop().time()
        waiting = [asyncio.create_task(enter(door)) for _ in range(5)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert asyncio.get_running_loop().time() - began >= 0.045
        (probe,) = done
        assert probe.result().probe
        assert door.in_flight == 1
        door.leave(probe.result(), "success")
        for task in waiting:
            if task is not probe:
                passed = await task
                assert not passed.probe
                door.leave(passed, "success")

    run(test)


def test_a_probe_that_fails_keeps_it_closed_for_twice_as_long() -> None:
    async def test() -> None:
        door = gate(threshold=1)
        door.leave(await enter(door), "overload")
        probe = await enter(door)
        door.leave(probe, "overload")
        assert door.breaker.opened == 2

    run(test)


def test_at_its_end_who_waits_is_sent_away_and_nobody_comes_in() -> None:
    async def test() -> None:
        door = gate(1)
        await enter(door)
        waiting = asyncio.create_task(door.enter())
        await asyncio.sleep(0)
        door.end()
        assert not isinstance(await waiting, Passed)
        assert not isinstance(await door.enter(), Passed)

    run(test)


def test_a_rate_spreads_requests_and_a_long_wait_is_waited_elsewhere() -> None:
    async def test() -> None:
        door = gate(10, rate=100.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(21):
            door.leave(await enter(door), "success")
        assert loop.time() - began >= 0.09
        slow = gate(10, rate=0.1)
        await enter(slow)
        assert await slow.enter() == pytest.approx(9.9, abs=0.2)
        assert slow.in_flight == 1

    run(test)


def test_an_endpoint_that_asks_to_wait_gets_nothing_until_then_and_its_circuit_stays() -> None:
    async def test() -> None:
        door = gate(10, threshold=1)
        loop = asyncio.get_running_loop()
        for _ in range(2):
            passed = await enter(door)
            began = loop.time()
            assert not door.leave(passed, "limited", 0.05)
            await enter(door)
            assert loop.time() - began >= 0.045
        assert door.breaker.closed

    run(test)


def test_a_request_that_waits_for_its_slot_does_not_go_out_while_the_endpoint_waits() -> None:
    async def test() -> None:
        door = gate(10, rate=20.0)
        first, *_ = [await enter(door) for _ in range(4)]
        waiting = asyncio.create_task(door.enter())
        await asyncio.sleep(0)
        door.leave(first, "limited", 1.5)
        again = await waiting
        assert not isinstance(again, Passed)
        assert 1.0 < again <= 1.5

    run(test)


def test_who_is_cancelled_while_waiting_holds_nobody_up() -> None:
    async def test() -> None:
        door = gate(1)
        first = await enter(door)
        given_up = asyncio.create_task(enter(door))
        waiting = asyncio.create_task(enter(door))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        door.leave(first, "success")
        await waiting

    run(test)


def test_windows_let_records_begin_in_order_of_their_offsets() -> None:
    async def test() -> None:
        hurried: list[bool] = []
        windows = Windows(lambda _: Window(2), lambda: hurried.append(True))
        assert await windows.enter("t", 0, 5)
        assert await windows.enter("t", 0, 7)
        third = asyncio.create_task(windows.enter("t", 0, 9))
        assert await windows.enter("t", 1, 9)
        windows.finished("t", 0, 7)
        assert not hurried
        windows.finished("t", 0, 5)
        assert hurried
        assert not third.done()
        windows.committed("t", 0, 8)
        assert await third
        fourth = asyncio.create_task(windows.enter("t", 0, 10))
        fifth = asyncio.create_task(windows.enter("t", 0, 11))
        assert await fourth
        windows.end()
        assert not await fifth

    run(test)


def test_a_partition_that_was_away_begins_anew() -> None:
    async def test() -> None:
        windows = Windows(lambda _: Window(1), lambda: None)
        assert await windows.enter("t", 0, 5)
        windows.forget([("t", 0)])
        assert await windows.enter("t", 0, 3)

    run(test)


def test_nobody_passes_at_once_ahead_of_one_who_waits_or_through_a_closed_gate() -> None:
    async def test() -> None:
        door = gate(1, threshold=1)
        first = door.at_once()
        assert first is not None
        assert door.at_once() is None  # it is full
        waiting = asyncio.create_task(enter(door))
        await asyncio.sleep(0)
        door.leave(first, "nothing")
        assert door.at_once() is None  # the place is the one's who waits
        assert door.leave(await waiting, "overload")
        assert door.at_once() is None  # the circuit is open
        await asyncio.sleep(0.06)
        assert door.at_once() is None  # a probe is not sent in passing
        assert (await enter(door)).probe
        assert door.in_flight == 1

    run(test)


def test_at_a_limited_rate_only_what_is_saved_passes_at_once() -> None:
    async def test() -> None:
        now = 10.0
        door = Gate(Breaker(), Concurrency(100), Pace(25.0), clock=lambda: now)
        passed = [door.at_once() for _ in range(10)]
        assert sum(each is not None for each in passed) == 3  # saved in 0.1 s
        assert door.in_flight == 3
        door.end()
        assert door.at_once() is None

    run(test)
