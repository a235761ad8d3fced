"""Every way out of a handler is a conclusion, and takes neither its key nor a place away."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from dedup.retries.backoff import Backoff
from dedup.retries.copies import Copy
from dedup.retries.plan import Plan
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.policies.departures import HandlerExited, reason_of
from dedup.rules.record import Record
from dedup.serving.handlers import of_batches, of_records
from dedup.serving.handover import Handover
from dedup.serving.retries import Retries
from dedup.settings.consumer import ConsumerSettings
from dedup.testing import Trial
from dedup.workers import workers_for
from outbox import envelope
from outbox.event import Event
from tests.support.waiting import patient, until


class Timeout(BaseException):
    """As eventlet's, which is no `Exception` either."""


@dataclass
class Served:
    """The outcomes of the records."""

    outcomes: dict[str, str] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    turn: Callable[[], None] = lambda: None
    drained: Callable[[], bool] = lambda: False

    def send(self, _: str, copy: Copy) -> None:
        headers = dict(copy.headers)
        self.letters[str((copy.key or b"").decode())] = (headers[envelope.ERROR] or b"").decode()

    def concludes(self, number: int) -> None:
        def are_concluded() -> bool:
            self.turn()
            return len(self.outcomes) >= number

        until(are_concluded, within=10, what=f"{number} records concluded")

    def reason(self) -> str:
        def is_there() -> bool:
            self.turn()
            return bool(self.failures)

        until(is_there, within=10, what="a reason to end")
        reason = reason_of(self.failures[0])
        assert isinstance(reason, HandlerExited)
        return str(reason)


@contextmanager
def serving(handler: Callable[..., Any], *keys: str, together: int = 1) -> Iterator[Served]:
    """Serve a record of each key with one place, and two attempts."""
    settings = ConsumerSettings.model_validate(
        {
            "topics": ["t"],
            "group": "g",
            "kafka": {"bootstrap.servers": "x"},
            "concurrency": 1,
            "handler_batch": together,
        }
    )
    served = Served()
    backoff = Backoff(
        base=timedelta(milliseconds=1), ceiling=timedelta(milliseconds=1), max_attempts=2
    )
    retries = Retries(Plan(patience=backoff, dead_letters="dead"), served)
    handle = (
        retries.handling(of_records(handler))
        if together == 1
        else retries.handling_batch(of_batches(handler))
    )
    handover = Handover(Lanes())
    with handover.lock:
        stretch = handover.lanes.begin("t", 0)
        handover.lanes.open(stretch)
    with ThreadPoolExecutor(1) as threads:
        workers = workers_for(
            settings,
            handle,
            handover,
            aside=retries,
            passes=None,
            threads=threads,
            failed=served.failures.append,
        )

        def turn() -> None:
            workers.wake(handover.release()[0])
            workers.reclaim()
            for report in handover.collect():
                for _, offset, _ in report.handled:
                    served.outcomes[keys[offset]] = "handled"
                for each in report.completed:
                    served.outcomes[str(each.record.event.key)] = each.outcome

        served.turn = turn
        served.drained = lambda: handover.drain([stretch], patient(2))
        records: dict[bytes | None, list[Record]] = {
            key.encode(): [Record("t", 0, n, 0, key.encode(), b"1", ())]
            for n, key in enumerate(keys)
        }
        workers.wake(handover.offer([(stretch, records)]))
        try:
            yield served
        finally:
            workers.close()


def in_both_forms(
    do: Callable[[Event], Any], calls: list[str], *, awaited: bool
) -> Callable[[Event], Any]:
    def handle(event: Event) -> Any:
        calls.append(str(event.key))
        return do(event) if event.key == "bad" else None

    async def handle_awaited(event: Event) -> Any:
        answer = handle(event)
        return await answer if asyncio.iscoroutine(answer) else answer

    return handle_awaited if awaited else handle


def raising(error: BaseException) -> Callable[[Event], Any]:
    def do(_: Event) -> None:
        raise error

    return do


FORMS = pytest.mark.parametrize("awaited", [False, True], ids=["thread", "loop"])


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (asyncio.CancelledError("gone"), "CancelledError: gone (test_ways_out.py:"),
        (GeneratorExit(), "GeneratorExit (test_ways_out.py:"),
        (Timeout("5 s"), "Timeout: 5 s (test_ways_out.py:"),
    ],
)
@FORMS
def test_what_is_no_exception_is_a_failed_attempt_with_its_reason(
    error: BaseException, says: str, *, awaited: bool
) -> None:
    calls: list[str] = []
    with serving(in_both_forms(raising(error), calls, awaited=awaited), "bad", "good") as served:
        served.concludes(2)
    assert served.outcomes == {"bad": "dead_letter", "good": "handled"}
    assert calls.count("bad") == 2
    assert served.letters["bad"].startswith(says)
    assert served.failures == []


async def of_a_library() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


async def of_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


@pytest.mark.parametrize("cancelled", [of_a_library, of_itself])
def test_a_cancelled_handler_leaves_its_place_to_others(
    cancelled: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    async def handle(event: Event) -> None:
        if str(event.key).startswith("bad"):
            await cancelled()
        await asyncio.sleep(0)

    keys = ["bad1", "good1", "bad2", "good2"]
    with serving(handle, *keys) as served:
        served.concludes(4)
    assert [served.outcomes[key] for key in keys] == ["dead_letter", "handled"] * 2
    assert "CancelledError" in served.letters["bad1"]
    assert served.failures == []


@pytest.mark.parametrize(
    ("error", "says", "status"),
    [
        (SystemExit(0), "the handler called sys.exit(0) (test_ways_out.py:", 1),
        (SystemExit(), "the handler called sys.exit() (test_ways_out.py:", 1),
        (SystemExit(3), "the handler called sys.exit(3)", 3),
        (SystemExit("no disk\n"), r"the handler called sys.exit(no disk\n)", 1),
        (KeyboardInterrupt(), "the handler raised KeyboardInterrupt", 130),
    ],
)
@FORMS
def test_a_handler_that_exits_ends_the_process_with_a_reason_and_a_status(
    error: BaseException, says: str, status: int, *, awaited: bool
) -> None:
    calls: list[str] = []
    with serving(in_both_forms(raising(error), calls, awaited=awaited), "bad") as served:
        assert served.reason().startswith(says)
        served.turn()
        assert served.drained()
    (failure,) = served.failures
    assert getattr(reason_of(failure), "status", None) == status
    assert served.outcomes == {}
    assert calls == ["bad"]


def test_a_stopped_loop_ends_the_process_with_a_reason() -> None:
    async def handle(_: Event) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(60)

    with serving(handle, "bad", "good") as served:
        assert "event loop of the handlers was stopped" in served.reason()


def test_a_task_that_is_cancelled_between_two_records_ends_with_a_reason_if_at_all() -> None:
    async def handle(_: Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # and returns, so that the next wait of ours is cancelled

    with serving(handle, *(f"k{n}" for n in range(500))) as served:
        until_ended = threading.Event()

        def is_over() -> bool:
            served.turn()
            until_ended.wait(0.001)
            return bool(served.failures) or len(served.outcomes) == 500

        until(is_over, within=20, what="all handled, or a reason to end")
        if served.failures:
            assert "was cancelled" in str(reason_of(served.failures[0]))


@pytest.mark.parametrize("returned", [True, "ok", {"status": "ok"}, 204, object()])
@FORMS
def test_a_value_that_is_no_result_is_refused_once(returned: object, *, awaited: bool) -> None:
    calls: list[str] = []
    handler = in_both_forms(lambda _: returned, calls, awaited=awaited)
    with serving(handler, "bad", "good") as served:
        served.concludes(2)
    assert calls.count("bad") == 1
    assert served.outcomes == {"bad": "dead_letter", "good": "handled"}
    assert (
        "not Done, Again, Skip, Retry or Dead; let it return one of these"
        in (served.letters["bad"])
    )


@pytest.mark.parametrize("returned", [True, [None], "ok", [None, True], 5])
@FORMS
def test_answers_that_do_not_fit_a_batch_are_refused_once(
    returned: object, *, awaited: bool
) -> None:
    calls: list[int] = []

    def handle(events: list[Event]) -> object:
        calls.append(len(events))
        return returned

    async def handle_awaited(events: list[Event]) -> object:
        return handle(events)

    with serving(handle_awaited if awaited else handle, "a", "b", together=2) as served:
        served.concludes(2)
    assert calls == [2]
    assert served.outcomes["b"] == "dead_letter"
    assert served.outcomes["a"] == ("handled" if returned == [None, True] else "dead_letter")


async def unawaited(_: Event) -> None: ...


def generator(_: Event) -> Iterator[None]:
    yield None


@pytest.mark.parametrize(("inner", "kind"), [(unawaited, "coroutine"), (generator, "generator")])
@FORMS
def test_a_handler_whose_code_did_not_run_ends_the_process_before_a_record_is_lost(
    inner: Callable[[Event], Any], kind: str, *, awaited: bool
) -> None:
    def handle(event: Event) -> Any:
        return inner(event)

    async def handle_awaited(event: Event) -> Any:
        return inner(event)

    with serving(handle_awaited if awaited else handle, "bad") as served:
        assert f"the handler returned a {kind} instead of a result" in served.reason()
    assert served.outcomes == {}
    assert served.letters == {}


def test_a_trial_says_that_a_handler_exits() -> None:
    def handle(_: Event) -> None:
        raise SystemExit(4)

    with pytest.raises(HandlerExited, match=r"called sys.exit\(4\)"):
        Trial(handle).feed(Event(topic="t", type="T"))
