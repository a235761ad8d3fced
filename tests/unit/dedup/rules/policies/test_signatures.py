"""Handlers that cannot be called with their arguments are refused before anything runs."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from dedup.consumer import Consumer
from dedup.rules.policies.expressions import load_handler
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


@wraps(two)
def wrapping(event: object) -> None: ...


@pytest.mark.parametrize("handler", [one, with_more, Called(), wrapping, [].append, max])
def test_what_takes_an_event_or_does_not_say_is_accepted(handler: Callable[..., Any]) -> None:
    Consumer(ConsumerSettings(**SETTINGS), handler)


def test_the_transaction_of_the_inbox_is_the_second_argument() -> None:
    Consumer(ConsumerSettings(**SETTINGS, **INBOX), two)


def test_a_handler_of_a_job_is_looked_at_too() -> None:
    with pytest.raises(BadSettings, match=r"getcwd takes .* is given an event"):
        load_handler("os:getcwd")
