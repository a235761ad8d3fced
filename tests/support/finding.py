"""A system of real, running parts, whose events are in many different states."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.consumer import Consumer
from dedup.inbox import schema as inbox_schema
from dedup.kafka.dead_topic import DeadTopic
from dedup.retries.letter import Which
from dedup.rules.unread import SkipNote
from dedup.unread.notes import keep
from dovecote.observe.find import Life, Query, find
from dovecote.observe.sources import WatchSettings, read
from dovecote.push.process import engine, running
from outbox import Event
from tests.support.consuming import consumes, settings
from tests.support.delivering import Endpoint, Reply
from tests.support.fix_stack import MakeTopic
from tests.support.idle_push import KEY, TOKEN, Client, installed, push_settings
from tests.support.relaying import Relays, commit, on_kafka
from tests.support.waiting import patient, until

UNCOMPRESSED = {"compression.type": "none"}


def without_password(dsn: str) -> str:
    parts = {k: str(v) for k, v in conninfo_to_dict(dsn).items() if k != "password"}
    return make_conninfo(**parts)


@dataclass
class System:
    """The parts, the file that names them, and the events by the names of their states."""

    fleet: Relays
    topics: dict[str, str]
    folder: Path
    events: dict[str, Event] = field(default_factory=dict)
    release: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def file(self) -> Path:
        return self.folder / "watch.toml"

    def made(self, name: str, topic: str, key: str | None = None, **more: Any) -> Event:
        """Return a new event, which is named."""
        event = Event(
            topic=topic, key=key or name, type="Found", source="/tests", value={"is": name, **more}
        )
        self.events[name] = event
        return event

    def watch(self) -> WatchSettings:
        return read(WatchSettings, self.file)

    def life(self, name: str) -> Life:
        return find(self.watch(), Query(id=self.events[name].id))

    def becomes(self, name: str, part: str, state: str) -> Life:
        """Wait until an event has a state at a part, and return its life."""
        last: list[Any] = []

        def seen() -> Life | None:
            life = self.life(name)
            last[:] = [life.as_json()]
            right = life.found and life.events[0].state(part) == state
            return life if right and not life.failures else None

        try:
            found = until(seen, within=30, what=f"{name} is {state} at {part}")
        except AssertionError as error:
            msg = f"{error}\n{last}"
            raise AssertionError(msg) from None
        assert found is not None
        return found

    def write(self) -> None:
        """Write the file that names the parts."""
        topics, dsn = self.topics, without_password(self.fleet.dsn)
        self.file.write_text(
            f"""
[kafka]
"bootstrap.servers" = "{self.fleet.bootstrap}"

[sources.outbox.shop]
dsn = "{dsn}"
name = "{self.fleet.name}"

[sources.consumer.shipping]
group = "{topics["orders"]}"
topics = ["{topics["orders"]}"]
inbox = {{ dsn = "{dsn}" }}
retries = {{ dead_letter_topic = "{topics["dead"]}", tiers = [{{ topic = "{topics["retry"]}" }}] }}

[sources.consumer.audit]
group = "audit-{topics["orders"]}"
topics = ["{topics["orders"]}"]

[sources.consumer.billing]
group = "billing-{topics["bills"]}"
topics = ["{topics["bills"]}"]

[sources.push.main]
url = "{self.url}"
token = {{ env = "FIND_TOKEN" }}
""",
            encoding="utf-8",
        )


def _handle(system: System) -> Any:
    times: dict[str, int] = {}

    def handle(event: Event, _: object) -> None:
        name = cast(dict[str, str], event.value)["is"]
        times[event.id] = times.get(event.id, 0) + 1
        if name == "working":
            system.release.wait(patient(120))
        if name == "retry":
            msg = "the printer is on fire"
            raise RuntimeError(msg)
        if name == "dead" or (name == "requeued" and times[event.id] == 1):
            msg = "no such address"
            raise LookupError(msg)

    return handle


@contextmanager
def system(fleet: Relays, make: MakeTopic, folder: Path) -> Iterator[System]:
    """Run an outbox with a relay, three consumers, of which one never runs, and push."""
    names = ("orders", "bills", "retry", "dead", "good", "bad", "paused")
    topics = {name: make() for name in names}
    topics["small"] = make(1, max_message_bytes="3000")
    found = System(fleet, topics, folder)
    with psycopg.connect(fleet.dsn) as conn:
        inbox_schema.install(conn)
    with ExitStack() as stack:
        _push(found, stack)
        found.write()
        relay = fleet.active(kafka=UNCOMPRESSED)
        _commit(found)
        _consume(found, stack)
        _requeue(found)
        _skip(found)
        until(lambda: len(on_kafka(fleet, topics["bills"])) == 1, within=30, what="published")
        found.becomes("parked", "outbox/shop", "parked")
        found.becomes("held", "outbox/shop", "held")
        relay.terminate()
        commit(fleet.dsn, found.made("unpublished", topics["orders"]))
        yield found


def _commit(found: System) -> None:
    topics = found.topics
    large = found.made("parked", topics["small"], "bad", more="x" * 5_000)
    commit(found.fleet.dsn, large)
    commit(found.fleet.dsn, found.made("held", topics["small"], "bad"))
    for name in ("working", "handled", "retry", "dead", "requeued", "skipped"):
        commit(found.fleet.dsn, found.made(name, topics["orders"]))
    commit(found.fleet.dsn, found.made("ahead", topics["bills"]))
    for name, topic in (("delivered", "good"), ("retrying", "bad"), ("paused", "paused")):
        commit(found.fleet.dsn, found.made(name, topics[topic]))


def _consume(found: System, stack: ExitStack) -> None:
    topics, bootstrap = found.topics, found.fleet.bootstrap
    retries = {
        "base": "10m",
        "ceiling": "1h",
        "max_attempts": 3,
        "dead_letter_topic": topics["dead"],
        "dead_on": ["builtins:LookupError"],
        "tiers": [{"topic": topics["retry"]}],
    }
    inbox = {"dsn": without_password(found.fleet.dsn)}
    given = settings(bootstrap, topics["orders"], retries=retries, inbox=inbox)
    stack.enter_context(consumes(Consumer(given, _handle(found))))
    # A handler that still works would keep its session after the consumer's end.
    stack.callback(found.release.set)
    plain = settings(bootstrap, topics["orders"], group=f"audit-{topics['orders']}")
    seen: list[str] = []
    with consumes(Consumer(plain, lambda event: seen.append(event.id))):
        until(lambda: len(seen) >= 6, within=30, what="all are handled by `audit`")


def _requeue(found: System) -> None:
    kafka = {"bootstrap.servers": found.fleet.bootstrap}
    letters = DeadTopic(kafka, found.topics["dead"])
    which = Which(ids=[found.events["requeued"].id])
    until(lambda: len(letters.letters(which)) == 1, within=30, what="a dead letter")
    letters.resolve(which, "requeued", lambda _: found.topics["retry"])


def _skip(found: System) -> None:
    """Keep a note that the consumer `audit` steps over the last of the orders."""
    kafka, orders = {"bootstrap.servers": found.fleet.bootstrap}, found.topics["orders"]
    offset = on_kafka(found.fleet, orders).index(found.events["skipped"].id)
    life = found.becomes("skipped", "consumer/audit", "completed")
    place = next(each.detail for each in life.events[0].steps if each.what == "published")
    at = int(place.partition(",")[0].rpartition("/")[2])
    assert at >= offset
    note = SkipNote(
        group=f"audit-{orders}",
        topic=orders,
        partition=0,
        first=at,
        until=at + 1,
        topic_id=None,
        error="Broker: Message failed its checksum",
        by="ann",
        at="2026-02-01T09:30:00Z",
        why="a test",
    )
    keep(kafka, note)


def _push(found: System, stack: ExitStack) -> None:
    topics = found.topics
    good = stack.enter_context(Endpoint())
    bad = stack.enter_context(Endpoint(lambda _: Reply(503, body=b"not today")))
    stack.enter_context(installed(found.fleet.dsn))
    kept = push_settings(found.fleet.dsn, found.fleet.bootstrap, allow_addresses=["127.0.0.0/8"])
    process = stack.enter_context(running(kept, engine(kept), {"KEYS": KEY}))
    api = Client(process.at.port, TOKEN)
    for name, endpoint in (("good", good), ("bad", bad), ("paused", good)):
        body = {
            "id": topics[name],
            "topics": [topics[name]],
            "endpoint": {"url": endpoint.url},
            "retry": {"type": "backoff", "base": "1s", "ceiling": "2s", "max_attempts": 1000},
        }
        assert api("POST", "/subscriptions", body).status == 201
    assert api("POST", f"/subscriptions/{topics['paused']}/pause").status == 200
    found.url = f"http://127.0.0.1:{process.at.port}"
