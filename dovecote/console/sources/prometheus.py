"""Ask a Prometheus for the history of a part."""

import math
from collections.abc import Iterator, Mapping, Sequence
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request

from dovecote.console.asked import ConsoleError
from dovecote.console.history import POINTS
from dovecote.console.rules.plan import Plan
from dovecote.console.shapes import SeriesShape
from dovecote.process.http.asking import ask, json_of

_SECONDS = 10.0
_MOST = 4_000_000
_LEAST_STEP = 5


def queries(plan: Plan, node: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the unit and the expression of each line that Prometheus has of a part."""
    kind, _, name = node.partition("/")
    if kind in {"outbox", "relay"}:
        outbox = name.partition("/")[0]
        named = f'{{outbox=~"{_escaped(outbox)}([.]shard-[0-9]+)?"}}'
        yield "rate", "events/s", f"sum(rate(dovecote_relay_events_published_total{named}[1m]))"
        yield "lag_events", "events", f"sum(dovecote_relay_lag_rows{named})"
        yield "lag_seconds", "s", f"max(dovecote_relay_lag_seconds{named})"
    elif kind == "consumer":
        group = next((each.group for each in plan.readers if each.id == node), name)
        named = f'{{group="{_quoted(group)}"}}'
        yield "rate", "events/s", f"sum(rate(dovecote_consumer_records_total{named}[1m]))"
        yield "lag_events", "events", f"sum(dovecote_consumer_lag_rows{named})"
        yield "lag_seconds", "s", f"max(dovecote_consumer_lag_seconds{named})"
    elif kind == "push" and "/" in name:
        named = f'subscription="{_quoted(name.partition("/")[2])}"'
        rate = f'sum(rate(dovecote_push_attempts_total{{{named},outcome="delivered"}}[1m]))'
        yield "rate", "events/s", rate
        yield "lag_events", "events", f"sum(dovecote_push_lag_rows{{{named}}})"


def lines(url: str, plan: Plan, node: str, *, minutes: int, now: float) -> Sequence[SeriesShape]:
    """
    Return the lines of a part; none: Prometheus has none of its kind.

    Raises:
        ConsoleError: Prometheus does not answer.
    """
    found = []
    for name, unit, expression in queries(plan, node):
        points = _points(_asked(url, expression, minutes, now))
        if points:
            found.append(SeriesShape(name=name, unit=unit, points=points))
    return found


def _asked(url: str, expression: str, minutes: int, now: float) -> object:
    step = max(_LEAST_STEP, math.ceil(minutes * 60 / (POINTS - 1)))
    asked = {"query": expression, "start": now - minutes * 60, "end": now, "step": step}
    request = Request(f"{url}/api/v1/query_range?{urlencode(asked)}")  # noqa: S310  # its scheme is checked
    try:
        found: object = json_of(ask(request, _SECONDS, _MOST))
    except (OSError, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
        msg = f"Prometheus at {url} does not answer: {error}"
        raise ConsoleError(
            503, msg, "start it, or correct or remove `console.prometheus`"
        ) from error
    return found


def _points(told: object) -> list[tuple[float, float]]:
    """Return the points of the only line in an answer, if it has one."""
    if not isinstance(told, Mapping) or told.get("status") != "success":
        return []
    try:
        found = [(float(at), float(value)) for at, value in told["data"]["result"][0]["values"]]
    except (LookupError, TypeError, ValueError, OverflowError):
        return []
    return [(at, value) for at, value in found if math.isfinite(value)][-POINTS:]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _escaped(text: str) -> str:
    """Return text as a part of a regular expression within quotes."""
    return "".join(each if each.isalnum() or each in "_-" else f"[{each}]" for each in text)
