"""The state of a running job, read from its own metrics."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import Request

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from dovecote.process.http.asking import ask, body_of, json_of, why
from dovecote.process.states import State
from outbox.errors import BadSettings
from spark_jobs.checkpoint import runs
from spark_jobs.query.watching import Watched

_SECONDS = 5.0
_MOST = 64_000
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104  # looked up, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One look at a job; if it does not run, only the first four fields count."""

    query: str
    ready: bool
    reason: str
    state: State = State.UNKNOWN
    batches: int = 0
    rows_per_s: float = 0.0
    lag_rows: int = 0
    lag_seconds: float = 0.0
    batch_seconds: float = 0.0
    keys: int = 0
    open: int = 0
    state_bytes: int = 0
    largest_bucket: int = 0


def address(settings: Watched) -> str:
    """
    Return where the job of `settings` serves its metrics.

    Raises:
        BadSettings: it serves none, or at a port that only its log shows.
    """
    http = settings.http
    if not http.port:
        what = "has none" if http.port is None else "has any free one (0)"
        msg = (
            f"a job reports its status at its http.port, and {settings.spark.query!r} {what}: "
            "set `http.port`, restart the job, and ask again"
        )
        raise BadSettings(msg)
    return f"http://{_EVERYWHERE.get(http.host, http.host)}:{http.port}"


def look(query: str, url: str, checkpoint: str | None = None) -> Status:
    """
    Return the state of the job `query`, which serves its metrics at `url`.

    If nothing answers there, its `checkpoint` says whether its runs fail again and again.
    """
    try:
        told = ask(Request(f"{url}/metrics"), _SECONDS).decode()  # noqa: S310  # our own address
        numbers = _numbers(text_string_to_metric_families(told), query)
        health = _health(url)
    except (OSError, ValueError) as error:
        reason = f"nothing answers at {url} ({why(error)}): the job does not run, or elsewhere"
        return _silent(query, reason, checkpoint)
    if "batches" not in numbers and "rows_per_second" not in numbers:
        reason = f"the program at {url} is not this job: correct `http.port`, or end that program"
        return Status(query=query, ready=False, reason=reason)
    return Status(
        query=query,
        ready=bool(health["ok"]),
        reason=str(health["reason"]),
        state=State(str(health.get("state", State.UNKNOWN))),
        batches=int(numbers.get("batches", 0)),
        rows_per_s=round(numbers.get("rows_per_second", 0.0), 1),
        lag_rows=int(numbers.get("lag_rows", 0)),
        lag_seconds=numbers.get("lag_seconds", 0.0),
        batch_seconds=numbers.get("last_batch_seconds", 0.0),
        keys=int(numbers.get("state_keys", 0)),
        open=int(numbers.get("state_open", 0)),
        state_bytes=int(numbers.get("state_bytes", 0)),
        largest_bucket=int(numbers.get("largest_bucket_bytes", 0)),
    )


def _silent(query: str, reason: str, checkpoint: str | None) -> Status:
    """Return the state of a job that does not answer, between two of its runs perhaps."""
    said = "" if checkpoint is None else runs.look(checkpoint).text(time.time())
    if said:
        return Status(query=query, ready=False, state=State.FAILING, reason=f"{said}; {reason}")
    return Status(query=query, ready=False, reason=reason)


def _numbers(families: Iterable[Metric], query: str) -> dict[str, float]:
    """Return the metrics of a query by name, added up over its partitions."""
    found: dict[str, float] = {}
    for family in families:
        if not family.name.startswith("dovecote_spark_"):
            continue
        name = family.name.removeprefix("dovecote_spark_")
        for sample in family.samples:
            if sample.labels.get("query") == query and not sample.name.endswith("_created"):
                found[name] = found.get(name, 0.0) + sample.value
    return found


def _health(url: str) -> dict[str, object]:
    try:
        body = ask(Request(f"{url}/readyz"), _SECONDS, _MOST)  # noqa: S310  # our own address
    except HTTPError as error:  # 503: not ready, and why
        body = body_of(error, _MOST)
    found = json_of(body)
    if not isinstance(found, dict) or not {"ok", "reason"} <= found.keys():
        msg = "its /readyz is not that of a process of Dovecote"
        raise ValueError(msg)
    return found
