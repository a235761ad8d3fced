"""Handlers that cannot be called with their arguments are refused before anything runs."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from types import ModuleType
from typing import Any

import pytest

from dedup.consumer import Consumer
from dedup.rules.policies.expressions import compile_filter, load_handler
from dedup.rules.policies.signatures import is_awaited
from dedup.settings.consumer import ConsumerSettings
from outbox import BadSettings

SETTINGS: dict[str, Any] = {
    "topics": ["orders"],
    "group": "g",
    "kafka": {"bootstrap.servers": "b:9092"},
}
INBOX = {"inbox": {"dsn": "host=db.internal dbname=billing"}}


def nothing() -> None: ...


def one(event: object) -> None: ...


def with_more(event: object, more: int = 0) -> None: ...


async def two(event: object, tx: object) -> None: ...


class Called:
    def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize(
    ("handler", "more", "says"),
    [
        (nothing, {}, r"test_signatures:nothing takes \(\), and is given an event: too many"),
        (one, INBOX, "one takes .*, and is given an event and the inbox's transaction"),
        (two, {"handler_batch": 9}, "two takes .* is given a list of events: missing .* 'tx'"),
        (Called, {}, "Called is a class"),
    ],
)
def test_what_a_handler_takes_and_is_given_is_said(
    handler: Callable[..., Any], more: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadSettings, match=says):
        Consumer(ConsumerSettings(**SETTINGS, **more), handler)


@wraps(nothing)
def wrapping(event: object) -> None: ...


@pytest.mark.parametrize("handler", [one, with_more, Called(), wrapping, [].append, max])
def test_what_takes_an_event_or_does_not_say_is_accepted(handler: Callable[..., Any]) -> None:
    Consumer(ConsumerSettings(**SETTINGS), handler)


def test_the_transaction_of_the_inbox_is_the_second_argument() -> None:
    Consumer(ConsumerSettings(**SETTINGS, **INBOX), two)


def test_a_handler_of_a_job_is_looked_at_too() -> None:
    with pytest.raises(BadSettings, match=r"getcwd takes .* is given an event"):
        load_handler("os:getcwd")


def yielding(_: object) -> Iterator[None]:
    yield None


async def yielding_async(_: object) -> AsyncIterator[None]:
    yield None


async def awaited(event: object) -> None: ...


class Awaited:
    async def __call__(self, event: object) -> None: ...


class Yielding:
    def __call__(self, _: object) -> Iterator[None]:
        yield None


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(event: object) -> object:
        return function(event)

    return wrapper


def running(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(event: object) -> object:
        return asyncio.run(function(event))

    return wrapper


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (yielding, "yielding is a generator"),
        (yielding_async, "yielding_async is a generator"),
        (Yielding(), "Yielding is a generator"),
        (partial(yielding), "yielding is a generator"),
        (passing_on(awaited), "awaited is an ordinary function around an async one"),
        (partial(passing_on(awaited)), "awaited is an ordinary function around an async one"),
        (passing_on(passing_on(awaited)), "awaited is an ordinary function around an async one"),
    ],
)
def test_a_handler_whose_call_would_not_run_it_is_refused(
    handler: Callable[..., Any], says: str
) -> None:
    with pytest.raises(BadSettings, match=says):
        Consumer(ConsumerSettings(**SETTINGS), handler)


@pytest.mark.parametrize(
    "handler",
    [awaited, Awaited(), partial(awaited), partial(Awaited())],
)
def test_an_async_handler_is_recognised_in_each_form(handler: Callable[..., Any]) -> None:
    Consumer(ConsumerSettings(**SETTINGS), handler)
    assert is_awaited(handler)


def test_a_decorator_that_runs_the_coroutine_makes_an_ordinary_handler() -> None:
    Consumer(ConsumerSettings(**SETTINGS), running(awaited))
    assert not is_awaited(running(awaited))


@pytest.mark.usefixtures("shop_rules")
@pytest.mark.parametrize("text", ["shop_rules:yielding", "shop_rules:awaited"])
def test_jobs_and_filters_refuse_them_too(text: str) -> None:
    with pytest.raises(BadSettings, match=r"is a generator|is an async function"):
        load_handler(text)
    with pytest.raises(BadSettings, match=r"is a generator|is an async function"):
        compile_filter(text)


@pytest.fixture
def shop_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_rules")
    module.yielding, module.awaited = yielding, partial(Awaited())  # type: ignore[attr-defined]  # a module of the test
    monkeypatch.setitem(sys.modules, "shop_rules", module)
