"""A source of the console that answers oddly is unknown with a reason, and no traceback."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dovecote.console.rules.numbers import numbers, process
from dovecote.console.rules.plan import Plan
from dovecote.console.sources import prometheus
from dovecote.console.sources.processes import ProcessSource
from dovecote.console.sources.pushed import PushApi
from dovecote.observe.sources import PushSource
from outbox.errors import DovecoteError
from tests.support.raw_answers import ODD, answering, whole
from tests.support.waiting import patient

COUNTS = {"delivered": 1, "dead": 0}


def history(url: str) -> Any:
    return prometheus.lines(url, Plan((), (), ()), "outbox/shop", minutes=1, now=1e9)


ASKING: dict[str, Callable[[str], Any]] = {
    "push": lambda url: PushApi(PushSource(url=url), patient(5)).ask(),
    "attempts": lambda url: PushApi(PushSource(url=url), patient(5)).attempts("s"),
    "process": lambda url: ProcessSource("relay", url, patient(5)).ask(),
    "prometheus": history,
}


@pytest.mark.parametrize("answer", ODD)
@pytest.mark.parametrize("source", ASKING)
def test_an_answer_that_cannot_be_read_is_an_error_with_a_reason(source: str, answer: str) -> None:
    with answering(ODD[answer]) as url, pytest.raises(DovecoteError) as error:
        ASKING[source](url)
    assert str(error.value)


@pytest.mark.parametrize(
    "told",
    [
        {"status": "success"},
        {"status": "success", "data": {}},
        {"status": "success", "data": {"result": []}},
        {"status": "success", "data": {"result": [{"histogram": []}]}},
        {"status": "success", "data": {"result": {"values": 1}}},
        {"status": "success", "data": {"result": [{"values": [[1, "x"], [2]]}]}},
        [],
    ],
)
def test_an_answer_of_prometheus_without_points_has_none(told: object) -> None:
    with answering(whole(json.dumps(told).encode())) as url:
        assert history(url) == []


@pytest.mark.parametrize(
    ("counts", "delivery"),
    [
        ({}, {}),
        ({"delivered": "many"}, {}),
        ({"delivered": 1e400}, {}),
        ({"delivered": 10**400}, {}),
        (COUNTS, {"lag": "many"}),
        (COUNTS, {"lag": [1]}),
        (COUNTS, {"lag": 10**400}),
        (COUNTS, {"last_minute": {"204": None}}),
        (COUNTS, {"last_minute": ["204"]}),
    ],
)
def test_subscriptions_of_another_form_are_an_error_with_a_reason(
    counts: object, delivery: dict[str, object]
) -> None:
    told = [
        {
            "id": "s",
            "status": {"state": "active"},
            "delivery": {"processes": 1, **delivery},
            "counts": counts,
        }
    ]
    # `1e400` is infinite, and JSON.
    body = json.dumps(told).replace("Infinity", "1e400").encode()
    with answering(whole(body)) as url, pytest.raises(DovecoteError, match="another form"):
        ASKING["push"](url)


def test_a_reason_that_utf_8_cannot_hold_is_shown_with_escapes() -> None:
    told = {"ok": False, "role": "r", "state": "failing", "reason": "cannot read /etc/\udcff"}
    with answering(whole(json.dumps(told).encode())) as url:
        found = ProcessSource("push", url, patient(5)).ask()
    assert (found.state, found.reason) == ("failing", r"cannot read /etc/\udcff")


def test_numbers_whose_sum_no_picture_could_hold_are_left_out() -> None:
    lines = ["dovecote_relay_lag_rows 1e308"] * 2 + ["dovecote_relay_lag_seconds 1e300"]
    found = process("relay", {"ok": True}, numbers("relay", lines))
    assert (found.lag_events, found.lag_seconds) == (None, None)
