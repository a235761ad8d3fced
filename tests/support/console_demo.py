"""Serve the console's page over made-up parts: `python -m tests.support.console_demo --help`."""

import argparse
import json
import math
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from dovecote.console.access import Door
from dovecote.console.api import Parts, application
from dovecote.console.asked import ConsoleError, Named, Verb, Wanted
from dovecote.console.deeds import DeedLog
from dovecote.console.settings import ConsoleTokenSettings
from dovecote.console.shapes import (
    EdgeShape,
    FindingShape,
    FlowShape,
    LagShape,
    NodeKind,
    NodeShape,
    PartShape,
    ProcessShape,
    SeriesShape,
    SourceShape,
    StateName,
    TableShape,
    TroubleShape,
)
from dovecote.process.health import HealthReport
from dovecote.process.http.connections import Bounds
from dovecote.process.http.server import serve
from dovecote.process.states import State

_BEGAN = datetime.now(UTC)


def _ago(**of: float) -> str:
    return (datetime.now(UTC) - timedelta(**of)).isoformat(timespec="milliseconds")


def _node(
    id_: str, kind: NodeKind, state: StateName = "working", *, wave: int = 0, **more: Any
) -> NodeShape:
    rate = round(40 * (1.2 + math.sin(time.time() / 7 + wave)), 2)
    node = NodeShape(
        id=id_,
        kind=kind,
        name=id_.rpartition("/")[2],
        state=state,
        since=_BEGAN.isoformat(timespec="milliseconds"),
        reason="",
        rate=rate if state == "working" else 0.0,
        lag=LagShape(events=0, seconds=0.0),
        role="",
        group=None,
        facts=[],
    )
    node.update(more)  # type: ignore[typeddict-item]  # the fields of a node
    return node


_TROUBLES: tuple[tuple[str, StateName, str, str], ...] = (
    (
        "push/main/sub-0001",
        "failing",
        "the endpoint answers 401 to all of the last 100 requests",
        "correct the secret of the subscription, or the endpoint's",
    ),
    (
        "outbox/shop",
        "stalled",
        "1 event is parked, and the later ones of its key wait",
        "see `dovecote dead --part outbox/shop`; requeue or drop it",
    ),
    (
        "topic/refunds",
        "failing",
        "topic refunds does not exist, and consumer/billing reads it",
        "`dovecote topic create refunds`",
    ),
    (
        "consumer/billing",
        "stalled",
        "no process is in the group, and 1,204 events wait",
        "start `dovecote consume run`",
    ),
    ("spark/sessions", "unknown", "not heard for 3 minutes", "see whether it runs"),
    ("consumer/shipping", "behind", "the oldest event waits for 95 s", "add processes"),
)


class DemoPicture:
    """A flow of N subscriptions and M topics, whose rates go up and down."""

    def __init__(self, subscriptions: int, topics: int, *, calm: bool, write: bool) -> None:
        self._subscriptions, self._topics = subscriptions, topics
        self._calm, self._write = calm, write

    def told(self) -> FlowShape:
        """Return the picture of now."""
        nodes, edges = self._nodes()
        known = {each["id"]: each for each in nodes}
        troubles: list[TroubleShape] = []
        for part, state, title, todo in () if self._calm else _TROUBLES:
            if part in known:
                known[part]["state"], known[part]["reason"] = state, title
                known[part]["rate"] = None if state == "unknown" else 0.0
                troubles.append(
                    TroubleShape(
                        part=part,
                        state=state,
                        since=_BEGAN.isoformat(timespec="milliseconds"),
                        title=title,
                        todo=todo,
                        link=f"#/part/{part}",
                    )
                )
        counts: dict[str, int] = {}
        for each in nodes:
            counts[each["state"]] = counts.get(each["state"], 0) + 1
        return FlowShape(
            at=_ago(),
            every=2.0,
            write=self._write,
            history="own",
            nodes=nodes,
            edges=edges,
            troubles=troubles,
            counts=counts,
            sources=[
                SourceShape(part="kafka/default", ok=True, error="", at=_ago(seconds=1)),
                SourceShape(part="push/main", ok=True, error="", at=_ago(seconds=1)),
            ],
        )

    def flow(self) -> bytes:
        return json.dumps(self.told(), separators=(",", ":")).encode()

    def part(self, node: str) -> PartShape:
        found = self._found(node)
        return PartShape(
            node=found,
            processes=[
                ProcessShape(
                    url="http://10.0.0.7:9464",
                    state=found["state"],
                    role="active",
                    reason=found["reason"],
                    at=_ago(seconds=1),
                )
            ],
            tables=[
                TableShape(
                    title="Partitions",
                    columns=["partition", "end", "lag"],
                    rows=[[str(number), "120,345", "3"] for number in range(6)],
                )
            ],
            doctor=[
                FindingShape(level="ok", text="Kafka answers", todo=""),
                FindingShape(level="warn", text="fsync is off", todo="set fsync = on"),
            ]
            if found["kind"] == "outbox"
            else None,
        )

    def history(self, node: str, minutes: int) -> Sequence[SeriesShape]:
        self._found(node)
        now = time.time()
        step = max(2.0, minutes * 60 / 600)
        count = int(minutes * 60 / step)
        times = [now - step * (count - each) for each in range(count)]
        return [
            SeriesShape(
                name=name,
                unit=unit,
                points=[(at, round(size * (1.2 + math.sin(at / 300)), 2)) for at in times],
            )
            for name, unit, size in (
                ("rate", "events/s", 40),
                ("lag_events", "events", 5),
                ("lag_seconds", "s", 1),
            )
        ]

    def _found(self, node: str) -> NodeShape:
        for each in self.told()["nodes"]:
            if each["id"] == node:
                return each
        raise ConsoleError(404, f"there is no part {node!r}", "see the parts in the picture")

    def _nodes(self) -> tuple[list[NodeShape], list[EdgeShape]]:
        nodes = [
            _node("outbox/shop", "outbox", facts=[("shards", "2"), ("standbys", "1")]),
            *(
                _node(f"relay/shop/{n}", "relay", wave=n, role="active", group="outbox/shop")
                for n in range(2)
            ),
            _node("relay/shop/standby", "relay", "standby", role="standby", group="outbox/shop"),
            _node("topic/dovecote.progress.outbox", "topic", role="progress", group="outbox/shop"),
            _node("consumer/shipping", "consumer", wave=1),
            _node("consumer/billing", "consumer", wave=2),
            _node(
                "topic/shipping.retry", "topic", "idle", role="retry", group="consumer/shipping"
            ),
            _node("topic/shipping.dead", "topic", "idle", role="dead", group="consumer/shipping"),
            _node("topic/refunds", "topic", wave=3),
            _node("spark/sessions", "spark", wave=4),
            _node("push/main", "push", facts=[("subscriptions", str(self._subscriptions))]),
        ]
        topics = [f"topic/orders-{number:03d}" for number in range(self._topics)]
        nodes += [_node(each, "topic", wave=number) for number, each in enumerate(topics)]
        edges = [_edge("outbox/shop", each) for each in topics]
        edges += [_edge("outbox/shop", "topic/dovecote.progress.outbox")]
        edges += [_edge(each, "consumer/shipping") for each in topics[:2]]
        edges += [_edge(each, "spark/sessions") for each in topics[:1]]
        edges += [
            _edge("topic/refunds", "consumer/billing"),
            _edge("consumer/shipping", "topic/shipping.retry"),
            _edge("topic/shipping.retry", "consumer/shipping"),
            _edge("consumer/shipping", "topic/shipping.dead"),
        ]
        for number in range(self._subscriptions):
            id_ = f"push/main/sub-{number:04d}"
            state: StateName = ("working", "idle", "working", "paused")[number % 4]
            nodes.append(_node(id_, "subscription", state, wave=number, group="push/main"))
            if topics:
                edges.append(_edge(topics[number % len(topics)], id_))
        return nodes, edges


def _edge(begin: str, end: str) -> EdgeShape:
    return EdgeShape({"from": begin, "to": end, "rate": 12.5})


class DemoLetters:
    """A few hundred letters, which are gone once they are requeued or dropped."""

    def __init__(self) -> None:
        self._letters = [_letter(number) for number in range(230)]

    def page(self, wanted: Wanted) -> Mapping[str, Any]:
        found = [each for each in self._letters if _fits(each, wanted)]
        start = int(wanted.after or 0)
        shown = found[start : start + wanted.limit]
        following = start + len(shown)
        return {
            "letters": shown,
            "next": str(following) if following < len(found) else None,
            "failures": [{"part": "spark/sessions", "error": "Kafka does not answer"}],
            "looked": f"from {_ago(hours=6)} to {_ago()}",
        }

    def resolve(self, verb: Verb, named: Sequence[Named], by: str) -> Mapping[str, Any]:
        del by
        done, failed = [], []
        for each in named:
            there = [
                one
                for one in self._letters
                if (one["part"], one["place"]) == (each.part, each.place)
            ]
            if there:
                self._letters.remove(there[0])
                what = "requeued" if verb == "requeue" else "dropped"
                done.append({"part": each.part, "place": each.place, "what": what})
            else:
                error = "it is no longer there"
                failed.append({"part": each.part, "place": each.place, "error": error})
        return {"done": done, "failed": failed}


def _letter(number: int) -> dict[str, Any]:
    part = ("consumer/shipping", "push/main/sub-0001", "outbox/shop")[number % 3]
    return {
        "part": part,
        "place": f"{part.rpartition('/')[2]}.dead/0/{number}",
        "topic": f"orders-{number % 5:03d}",
        "key": f"order-{number}",
        "id": f"0198c1e2-7a10-7000-8000-{number:012d}",
        "type": "OrderPlaced",
        "at": _ago(minutes=number),
        "reason": "<b>ValueError</b>: no such customer" if number % 2 else "401 Unauthorized",
        "attempts": 5,
        "value": json.dumps({"order": number, "customer": {"name": "Ada"}}),
        "headers": [["traceparent", "00-1-2-01"], ["odd", None]],
        "actions": ["requeue", "drop"],
    }


def _fits(letter: Mapping[str, Any], wanted: Wanted) -> bool:
    pairs = [(each, getattr(wanted, each)) for each in ("topic", "key", "id", "type")]
    exact = all(value is None or letter[name] == value for name, value in pairs)
    in_part = wanted.part is None or str(letter["part"]).startswith(wanted.part)
    return exact and in_part and (wanted.reason or "") in letter["reason"]


class DemoFinds:
    """One life, whatever is looked for."""

    def life(
        self, id_: str | None, key: str | None, topic: str | None, since: datetime | None
    ) -> Mapping[str, Any]:
        del topic, since
        return {
            "query": {"id": id_, "key": key},
            "where": "consumer/shipping has it on its retry topic, for its third attempt.",
            "waits_for": "It waits for its turn at 12:04:10.",
            "steps": [
                {"at": _ago(minutes=3), "part": "outbox/shop", "what": "written", "detail": ""},
                {
                    "at": _ago(minutes=2),
                    "part": "topic/orders-000",
                    "what": "published",
                    "detail": "orders-000/2/4711",
                },
            ],
            "looked": [{"part": "topic/orders-000", "from": _ago(hours=1), "to": _ago()}],
            "failures": [{"part": "push/main", "error": "it does not answer"}],
        }


class _Well:
    def ready(self) -> HealthReport:
        return HealthReport(ok=True, role="console", reason="", state=State.WORKING)


@contextmanager
def demo(
    port: int = 0,
    *,
    subscriptions: int = 4,
    topics: int = 3,
    calm: bool = False,
    write: bool = True,
    tokens: bool = False,
) -> Iterator[str]:
    """Serve until the block ends, and yield the URL."""
    known = {
        "reader": ConsoleTokenSettings(sha256=_digest("reader-token")),
        "writer": ConsoleTokenSettings(sha256=_digest("writer-token"), rights=("read", "write")),
    }
    picture = DemoPicture(subscriptions, topics, calm=calm, write=write)
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts(
            picture,
            DemoLetters(),
            DemoFinds(),
            DeedLog(Path(folder)),
            Door(known if tokens else {}, write=write),
        )
        with serve(
            application(parts),
            "127.0.0.1",
            port,
            hosts=(),
            bounds=Bounds(connections=64, requests=32),
            health=_Well(),
            numbers=CollectorRegistry(),
        ) as bound:
            yield f"http://127.0.0.1:{bound}"


def _digest(token: str) -> str:
    return f"sha256:{sha256(token.encode()).hexdigest()}"


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--subscriptions", type=int, default=4)
    parser.add_argument("--topics", type=int, default=3)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--tokens", action="store_true")
    given = parser.parse_args()
    with demo(
        given.port,
        subscriptions=given.subscriptions,
        topics=given.topics,
        calm=given.calm,
        write=not given.read_only,
        tokens=given.tokens,
    ) as url:
        print(url, flush=True)  # noqa: T201  # the port may be any
        threading.Event().wait()


if __name__ == "__main__":
    main()
