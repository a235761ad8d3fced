"""Answers of a console's server: the demo's flow, a large one, a hostile one."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"

NOW = datetime(2026, 11, 27, 14, 2, 11, tzinfo=UTC)


def at(seconds_ago: float = 0) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).isoformat().replace("+00:00", "Z")


def node(id_: str, kind: str, state: str = "working", **more: Any) -> Json:
    """Return a node; what is not given is unknown."""
    made: Json = {
        "id": id_,
        "kind": kind,
        "name": id_.rpartition("/")[2],
        "state": state,
        "since": at(5400),
        "reason": "",
        "rate": None,
        "lag": None,
        "role": "",
        "group": None,
        "facts": [],
    }
    return made | more


def edge(from_: str, to: str, rate: float | None = None) -> Json:
    return {"from": from_, "to": to, "rate": rate}


def trouble(part: str, state: str, title: str, todo: str, ago: float = 95) -> Json:
    link = f"#/part/{part}"
    return {
        "part": part,
        "state": state,
        "since": at(ago),
        "title": title,
        "todo": todo,
        "link": link,
    }


def flow(
    nodes: list[Json], edges: list[Json] | None = None, troubles: list[Json] | None = None
) -> Json:
    """Return an answer of /api/flow, with the counts of its nodes."""
    counts: dict[str, int] = {}
    for each in nodes:
        counts[each["state"]] = counts.get(each["state"], 0) + 1
    return {
        "at": at(),
        "every": 0.2,
        "write": True,
        "history": "own",
        "nodes": nodes,
        "edges": edges or [],
        "troubles": troubles or [],
        "counts": counts,
        "sources": [],
    }


def _lag(events: int | None, seconds: float | None) -> Json:
    return {"events": events, "seconds": seconds}


def well() -> Json:
    """Return the demo's flow while all is well."""
    nodes = [
        node(
            "outbox/shop",
            "outbox",
            rate=412.0,
            lag=_lag(18, 0.2),
            facts=[["schema", "outbox"], ["shards", "2"]],
        ),
        node("relay/shop/0", "relay", rate=208.0, group="outbox/shop", facts=[["shard", "0"]]),
        node("relay/shop/1", "relay", rate=204.0, group="outbox/shop", facts=[["shard", "1"]]),
        node("relay/shop/0b", "relay", "standby", group="outbox/shop"),
        node("outbox/billing", "outbox", "idle", rate=0.0, lag=_lag(0, 0)),
        node("relay/billing/0", "relay", "idle", rate=0.0, group="outbox/billing"),
        node("topic/orders", "topic", rate=361.0),
        node("topic/payments", "topic", rate=51.0),
        node("topic/invoices", "topic", "idle", rate=0.0),
        node("topic/sessions", "topic", rate=7.4),
        node("consumer/shipping", "consumer", rate=360.0, lag=_lag(42, 0.4)),
        node("topic/orders.retry.1m", "topic", "idle", role="retry", group="consumer/shipping"),
        node("topic/orders.dead", "topic", "idle", role="dead", group="consumer/shipping"),
        node("consumer/ledger", "consumer", rate=51.0, lag=_lag(3, 0.1)),
        node("spark/sessions", "spark", rate=361.0, lag=_lag(1210, 4.0)),
        node("push/main", "push", rate=402.0),
        node("push/main/warehouse", "subscription", rate=351.0, group="push/main"),
        node("push/main/billing", "subscription", rate=51.0, group="push/main"),
    ]
    edges = [
        edge("outbox/shop", "topic/orders", 361.0),
        edge("outbox/shop", "topic/payments", 51.0),
        edge("outbox/billing", "topic/invoices", 0.0),
        edge("topic/orders", "consumer/shipping", 360.0),
        edge("topic/payments", "consumer/ledger", 51.0),
        edge("topic/invoices", "consumer/ledger", 0.0),
        edge("topic/orders", "spark/sessions", 361.0),
        edge("spark/sessions", "topic/sessions", 7.4),
        edge("topic/orders", "push/main/warehouse", 351.0),
        edge("topic/payments", "push/main/billing", 51.0),
    ]
    return flow(nodes, edges)


_WRONG = {
    "push/main/billing": (
        "failing",
        "endpoint answers 401 to all of the last 100 requests",
        "Give the subscription the endpoint's new secret: `dovecote push update billing`.",
    ),
    "consumer/ledger": (
        "stalled",
        "no member of the group answers, and 5,102 events wait",
        "Start a process of the consumer, or see its log: `dovecote consume --status`.",
    ),
    "outbox/billing": (
        "stalled",
        "topic 'invoices' does not exist, and 3 events wait for it",
        "Create it: `dovecote topic create invoices --partitions 6`.",
    ),
    "outbox/shop": (
        "behind",
        "1 event was parked: the record is larger than the broker takes",
        "See it under dead letters, and requeue or drop it.",
    ),
}


def ill() -> Json:
    """Return the demo's flow with four troubles."""
    found = well()
    for each in found["nodes"]:
        if each["id"] in _WRONG:
            state, title, _ = _WRONG[each["id"]]
            each.update(state=state, reason=title, since=at(95))
        if each["id"] == "consumer/ledger":
            each.update(rate=0.0, lag=_lag(5102, 100))
        if each["id"] == "topic/invoices":
            each.update(state="unknown", rate=None, reason="the topic does not exist")
        if each["id"] == "push/main":
            each.update(state="failing", reason="1 of 2 subscriptions fails")
    found["troubles"] = [
        trouble(part, state, title, todo) for part, (state, title, todo) in _WRONG.items()
    ]
    found["counts"] = flow(found["nodes"])["counts"]
    return found


def large(subscriptions: int = 2000, topics: int = 500) -> Json:
    """Return a flow of that many, with some that fail."""
    nodes = [node("outbox/shop", "outbox", rate=5000.0), node("push/main", "push", rate=9000.0)]
    edges = []
    for number in range(topics):
        nodes.append(node(f"topic/events.{number:04d}", "topic", rate=number / 7))
        edges.append(edge("outbox/shop", f"topic/events.{number:04d}", number / 7))
    for number in range(subscriptions):
        id_ = f"push/main/customer-{number:05d}"
        state = "failing" if number % 97 == 5 else "working"
        lag = _lag(number, number / 100)
        nodes.append(node(id_, "subscription", state, rate=number / 9, lag=lag, group="push/main"))
        edges.append(edge(f"topic/events.{number % topics:04d}", id_, number / 9))
    failing = [each["id"] for each in nodes if each["state"] == "failing"]
    troubles = [
        trouble(id_, "failing", "endpoint answers 503", "Ask its owner.") for id_ in failing
    ]
    return flow(nodes, edges, troubles)


def hostile() -> Json:
    """Return a flow whose names and reasons are markup, and one name without an end."""
    found = well()
    longest = "consumer/" + "x" * 400
    found["nodes"] += [
        node(f"consumer/{HOSTILE}", "consumer", "failing", name=HOSTILE, reason=HOSTILE),
        node(longest, "consumer", rate=1.0),
    ]
    found["edges"] += [edge("topic/orders", f"consumer/{HOSTILE}", 1.0)]
    evil = trouble(f"consumer/{HOSTILE}", "failing", HOSTILE, HOSTILE)
    found["troubles"] = [evil | {"link": "javascript:document.title='taken'"}]
    return found


def part(id_: str, now: Json) -> Json:
    """Return an answer of /api/part."""
    found = next((each for each in now["nodes"] if each["id"] == id_), node(id_, "consumer"))
    process = {
        "url": "http://shipping-0.internal:9464",
        "state": found["state"],
        "role": "member 1 of 2",
        "reason": found["reason"],
        "at": at(1),
    }
    standby = process | {"url": "http://shipping-1.internal:9464", "role": "member 2 of 2"}
    return {
        "node": found,
        "processes": [process, standby],
        "tables": [
            {
                "title": "Partitions",
                "columns": ["partition", "member", "offset", "end", "lag"],
                "rows": [
                    [each, f"shipping-{each % 2}", 190412 + each * 7, 190419 + each * 8, each + 7]
                    for each in range(6)
                ],
            }
        ],
        "doctor": [
            {"level": "ok", "text": "The group reads every partition of its topics.", "todo": ""},
            {
                "level": "warn",
                "text": "Topic 'orders.dead' keeps its letters for 7 days.",
                "todo": "Set retention.ms to what your operators need.",
            },
        ],
    }


def history(minutes: int) -> Json:
    """Return an answer of /api/history: two lines that end now."""
    end = datetime.now(UTC).timestamp()
    step = minutes * 60 / 120
    times = [end - step * (120 - each) for each in range(121)]
    rates = [[time, 350 + 60 * math.sin(place / 9)] for place, time in enumerate(times)]
    lags = [[time, max(0.0, 300 * math.sin(place / 19))] for place, time in enumerate(times)]
    return {
        "series": [
            {"name": "rate", "unit": "events/s", "points": rates},
            {"name": "lag_events", "unit": "events", "points": lags[:40] + lags[60:]},
        ]
    }


def letters(number: int = 12, reason: str = "KeyError: 'address'") -> list[Json]:
    """Return dead letters, and one parked event, newest first."""
    found: list[Json] = [
        {
            "part": "consumer/shipping",
            "place": f"orders.dead/0/{900 - each}",
            "topic": "orders",
            "key": f"order-{4711 + each}",
            "id": f"0190b3f2-6c1e-7a55-8d0e-{each:012x}",
            "type": "OrderPlaced",
            "at": at(60 * each + 30),
            "reason": reason,
            "attempts": 5,
            "value": '{"order": 4711, "total": "99.50", "lines": [{"sku": "A-1"}]}',
            "headers": [["ce_source", "/shop"], ["ce_type", "OrderPlaced"]],
            "actions": ["requeue", "drop"],
        }
        for each in range(number)
    ]
    parked = {
        "part": "outbox/shop",
        "place": "parked/17",
        "reason": "MSG_SIZE_TOO_LARGE: the record is larger than the broker takes",
        "attempts": 1,
    }
    if found:
        found[min(2, len(found) - 1)] |= parked
    return found


def life(id_: str) -> Json:
    """Return an answer of /api/find."""
    steps = [
        ("outbox/shop", "written to the outbox", "in the transaction of order-4711"),
        ("relay/shop/0", "published", "topic orders, partition 3, offset 190412"),
        ("consumer/shipping", "handling failed", "KeyError: 'address', attempt 1"),
        ("consumer/shipping", "sent to the retry topic", "orders.retry.1m, due in 60 s"),
        ("push/main/warehouse", "delivered", "204 from https://warehouse.example/events"),
        ("consumer/shipping", "became a dead letter", "orders.dead/0/900 after 5 attempts"),
    ]
    seconds = (700, 699.6, 699.1, 699, 698.7, 381)
    return {
        "query": {"id": id_},
        "where": "It is a dead letter of consumer/shipping, in orders.dead/0/900.",
        "waits_for": "It waits for an operator, who requeues or drops it.",
        "steps": [
            {"at": at(ago), "part": part_, "what": what, "detail": detail}
            for ago, (part_, what, detail) in zip(seconds, steps, strict=True)
        ],
        "looked": [{"part": "outbox/shop", "from": at(7200), "to": at()}],
        "failures": [{"part": "spark/sessions", "error": "its checkpoint cannot be read"}],
    }


def log() -> Json:
    """Return an answer of /api/log."""
    entry = {
        "at": at(600),
        "by": "ada",
        "action": "requeue",
        "what": "consumer/shipping orders.dead/0/880",
        "outcome": "sent to orders.retry.1m",
    }
    return {"entries": [entry, entry | {"action": "drop", "outcome": "dropped", "by": "grace"}]}
