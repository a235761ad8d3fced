"""Ask push for its subscriptions, and for their requests, through its API or its database."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

from psycopg import sql

from dovecote.observe.find.rules.facts import Attempt, Taker
from dovecote.observe.sources import PushSource
from dovecote.process.http.asking import ask, json_of, why
from outbox.errors import DovecoteError
from outbox.postgres import session

_SECONDS = 5.0
_STATEMENT_MS = 8_000
_OURS = {"connect_timeout": 5, "tcp_user_timeout": 10_000}
_MOST_BYTES = 50_000_000


class Sent(NamedTuple):
    """One request of a subscription, and the event that it was for."""

    event: str
    place: tuple[str, int, int]
    attempt: Attempt


def readers(part: str, source: PushSource) -> list[Taker]:
    """
    Return the subscriptions of a push, as readers.

    Raises:
        DovecoteError: the API does not answer, or does not let us in.
        psycopg.Error: the same of the database, if there is no API.
    """
    if source.url is not None:
        return [_reader(part, each, each["status"]) for each in _get(source, "/subscriptions")]
    rows = _select(source, "SELECT spec, state, reason FROM {}.subscriptions ORDER BY id", [])
    return [_reader(part, spec, {"state": s, "reason": why}) for spec, s, why in rows]


def requests(
    source: PushSource, ids: Sequence[str], events: Collection[str]
) -> dict[str, list[Sent]]:
    """
    Return the requests of subscriptions for events, by subscription, the earliest first.

    Push keeps the last 100 of each subscription.

    Raises:
        DovecoteError: the API does not answer, or does not let us in.
        psycopg.Error: the same of the database, if it is named.
    """
    found: dict[str, list[Sent]] = {}
    if source.dsn:
        told = _select(
            source,
            "SELECT subscription, told FROM {}.attempts WHERE subscription = ANY (%s)"
            " AND told->>'event_id' = ANY (%s) ORDER BY id",
            [list(ids), list(events)],
        )
        for id_, each in told:
            found.setdefault(id_, []).append(_request(each))
        return found
    for id_ in ids:
        each = _get(source, f"/subscriptions/{quote(id_, safe='')}/attempts")
        found[id_] = [_request(one) for one in reversed(each) if one["event_id"] in events]
    return found


def _reader(part: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> Taker:
    id_ = str(spec["id"])
    own = f"dovecote.push.{id_}"
    pattern = spec.get("pattern")
    topics = spec.get("topics") or [each["topic"] for each in spec.get("partitions") or ()]
    paused = "" if status["state"] == "active" else str(status["state"])
    if paused and status.get("reason"):
        paused += f" ({status['reason']})"
    return Taker(
        f"{part}/{id_}",
        "push",
        str(spec.get("group") or own),
        (f"^({pattern})$",) if pattern else tuple(topics),
        retries=(f"{own}.requeued",),
        dead=str(spec.get("dead_letter_topic") or f"{own}.dead"),
        paused=paused,
    )


def _request(told: Mapping[str, Any]) -> Sent:
    attempt = Attempt(
        int(told["number"]),
        datetime.fromtimestamp(told["at"], UTC),
        str(told["outcome"]),
        told["status"],
        str(told["detail"]),
    )
    place = str(told["topic"]), int(told["partition"]), int(told["offset"])
    return Sent(str(told["event_id"]), place, attempt)


def _select(source: PushSource, query: str, given: Sequence[Any]) -> list[Any]:
    with session.connect(source.dsn, name="dovecote find", ours=_OURS) as conn:
        conn.execute(f"SET statement_timeout = {_STATEMENT_MS}".encode())
        asked = sql.SQL(query).format(sql.Identifier(source.schema_name))
        return conn.execute(asked, given).fetchall()


def _get(source: PushSource, path: str) -> Any:  # noqa: ANN401  # JSON
    request = Request(f"{source.url}{path}")  # noqa: S310  # http or https, as the settings say
    if source.token:
        request.add_header("Authorization", f"Bearer {source.token}")
    try:
        return json_of(ask(request, _SECONDS, _MOST_BYTES))
    except HTTPError as error:
        with error:
            hint = "; give `token` a token of its API" if error.code in {401, 403} else ""
        msg = f"the API at {source.url} answers {error.code}{hint}"
        raise DovecoteError(msg) from error
    except OSError as error:
        msg = f"the API at {source.url} does not answer ({why(error)})"
        raise DovecoteError(msg) from error
    except ValueError as error:
        msg = f"{source.url} answers, but not as the API of `dovecote push serve` does"
        raise DovecoteError(msg) from error
