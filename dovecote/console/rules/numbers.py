"""Read what the console needs from a process's metrics and from its `/readyz`."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from dovecote.console.rules.facts import ProcessFacts
from dovecote.console.shapes import StateName

_LINE = re.compile(r"(dovecote_[a-z_]+)(?:\{(.*)\})? (\S+)(?: \d+)?")
_TOPIC = re.compile(r'topic="((?:[^"\\]|\\.)*)"')
_STATES: Mapping[str, StateName] = {each: each for each in get_args(StateName)}

_DONE = {
    "relay": "dovecote_relay_events_published_total",
    "consumer": "dovecote_consumer_records_total",
    "spark": "dovecote_spark_rows_total",
}
_EVENTS = {
    "relay": "dovecote_relay_lag_rows",
    "consumer": "dovecote_consumer_lag_rows",
    "spark": "dovecote_spark_lag_rows",
}
_SECONDS = {
    "relay": "dovecote_relay_lag_seconds",
    "consumer": "dovecote_consumer_lag_seconds",
    "spark": "dovecote_spark_lag_seconds",
}
_PARKED = "dovecote_relay_parked"
_MOST = 2**63

Numbers = Mapping[str, list[tuple[str, float]]]
"""Values by the metric's name, with the labels as they were written."""


def numbers(kind: str, lines: Iterable[str]) -> Numbers:
    """Return the numbers that the console needs from lines of metrics."""
    wanted = {_DONE[kind], _EVENTS[kind], _SECONDS[kind], _PARKED}
    found: dict[str, list[tuple[str, float]]] = {}
    for line in lines:
        if line[:9] != "dovecote_" or (match := _LINE.fullmatch(line)) is None:
            continue
        if match[1] in wanted and (value := _number(match[3])) is not None:
            found.setdefault(match[1], []).append((match[2] or "", value))
    return found


def process(kind: str, ready: Mapping[str, object], found: Numbers) -> ProcessFacts:
    """Return the facts about a process."""
    role = str(ready.get("role", ""))
    done = found.get(_DONE.get(kind, ""), [])
    published: dict[str, float] = {}
    if kind == "relay":
        for labels, value in done:
            if (topic := _TOPIC.search(labels)) is not None:
                published[topic[1]] = published.get(topic[1], 0.0) + value
    parked = [value for _, value in found.get(_PARKED, [])]
    events = [value for _, value in found.get(_EVENTS.get(kind, ""), [])]
    seconds = [value for _, value in found.get(_SECONDS.get(kind, ""), [])]
    return ProcessFacts(
        state=state_of(ready),
        role=role,
        reason=str(ready.get("reason", ""))[:1_000],
        published=published,
        done=sum(value for _, value in done) if done or kind in _DONE else None,
        lag_events=sum(events) if events else None,
        lag_seconds=max(seconds, default=None),
        parked=sum(parked) if parked else None,
    )


def state_of(ready: Mapping[str, object]) -> StateName:
    """Return the state that `/readyz` says; of an older process the one that fits what it says."""
    said = _STATES.get(str(ready.get("state")))
    if said is not None:
        return said
    role = str(ready.get("role", ""))
    if role == "stopped":
        return "draining"
    if role == "starting":
        return "starting"
    if ready.get("ok") is not True:
        return "failing"
    return "standby" if role == "standby" else "idle"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    # No picture could hold the sum of larger ones.
    return value if math.isfinite(value) and abs(value) < _MOST else None


def count_of(told: Any) -> int:  # noqa: ANN401  # JSON
    """
    Return a count in an answer.

    Raises:
        ValueError, TypeError, OverflowError: it is none.
    """
    found = int(told)
    if not 0 <= found < _MOST:
        msg = "no part has counted so far"
        raise ValueError(msg)
    return found
