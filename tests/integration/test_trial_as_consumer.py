"""A trial and a real consumer, with an inbox, make the same of the same records."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from dedup import Backoff, Consumer, Dead, Inbox, Plan, Result, Retry, Skip, Tier, Trial
from dedup.inbox import schema as inbox_schema
from dedup.rules.policies.results import Again
from outbox import Event
from outbox.envelope import ERROR, ORIGIN, Record, delivery
from outbox.testing import recorded
from tests.support.consuming import committed, event, produce, settings
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

SHORT, LONG = timedelta(milliseconds=20), timedelta(milliseconds=400)
PATIENCE = Backoff(base=SHORT, ceiling=timedelta(milliseconds=50), max_attempts=3)


class Handler:
    """Answers by the key of an event, and notes each call with its attempt and round."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.noted: list[tuple[str, str]] = []

    def __call__(self, given: Event, tx: Any) -> Result | None:
        tx.execute("INSERT INTO effects VALUES (%s)", [given.id])
        self.calls[given.id] += 1
        self.noted.append((given.id, given.key))  # type: ignore[arg-type]  # it is text here
        number = self.calls[given.id]
        match given.key:
            case "late" if number < 3:
                return Retry("busy", LONG if number == 2 else None)
            case "never":
                return Retry("busy")
            case "raises":
                raise LookupError(given.id)
            case "dead":
                return Dead("closed")
            case "skipped":
                return Skip("not ours")
            case "again" if number < 3:
                return Again(SHORT)
        return None


def events(topic: str) -> list[Event]:
    keys = ("fine", "late", "never", "raises", "dead", "skipped", "again")
    each = [event(topic, key, number) for number in range(2) for key in keys]
    poison = Event(topic=topic, key="poison", type="T", value=b"{", id="poison-0")
    return [*each, event(topic, "fine", 0), poison, event(topic, "again", 0)]


@pytest.fixture
def effects(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (id text)")
    known = psycopg.conninfo.conninfo_to_dict(database)
    monkeypatch.setenv("PGPASSWORD", str(known.pop("password", "")))
    return psycopg.conninfo.make_conninfo(**{k: str(v) for k, v in known.items()})


def rows(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM effects ORDER BY id").fetchall()]


def letters(records: list[Any], topics: dict[str, str]) -> list[tuple[Any, ...]]:
    """Return what each dead letter says, with the topics of a trial in place of real ones."""
    found = []
    for each in records:
        headers = dict(each.headers)
        origin = (headers[ORIGIN] or b"").decode().partition("/")[0]
        # Without the place in the code, and the name of the topic.
        said = (headers[ERROR] or b"").decode().split(" (")[0]
        reason = "is not JSON" if "is not JSON" in said else said
        number = delivery(each)
        found.append((headers["ce_id"], number.attempt, number.round, topics[origin], reason))
    return sorted(found)


@contextmanager
def consumer_of(settings_: Any, handle: Any) -> Iterator[Consumer]:
    consumer = Consumer(settings_, handle)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.run)
        try:
            yield consumer
        finally:
            consumer.stop()
        running.result(patient(60))


@pytest.mark.parametrize("tiered", [False, True], ids=["held", "retry topics"])
def test_both_have_the_same_outcomes(
    stack: Servers, topic: MakeTopic, effects: str, *, tiered: bool
) -> None:
    kafka = stack.kafka.bootstrap
    name, dead, short, long = topic(), topic(), topic(), topic()
    real, tried = Handler(), Handler()
    retries: dict[str, Any] = {
        "base": "20ms",
        "ceiling": "50ms",
        "max_attempts": 3,
        "dead_letter_topic": dead,
    }
    if tiered:
        retries["tiers"] = [{"topic": short}, {"topic": long, "wait": "300ms"}]
    given = events(name)
    produce(kafka, *given)
    made = settings(kafka, name, retries=retries, inbox={"dsn": effects})

    plan = Plan(
        patience=PATIENCE,
        dead_letters="dead",
        tiers=[Tier("short"), Tier("long", timedelta(milliseconds=300))] if tiered else [],
    )
    with recorded() as conn:
        trial = Trial(tried, tx=conn, plan=plan)
        trial.feed(*events("orders"))
        trial.finish()
    expected = letters(trial.dead_letters, {"orders": "orders"})
    assert len(expected) == 7

    with consumer_of(made, real):
        until(
            lambda: (
                committed(kafka, name)[0] == len(given)
                and len(consume(kafka, dead)) == len(expected)
                and real.calls == tried.calls
            ),
            within=60,
            what="all done",
        )

    assert real.calls == tried.calls
    topics = {name: "orders", short: "short", long: "long"}
    found = [
        Record(m.topic(), 0, 0, 0, m.key(), m.value(), m.headers() or ())  # type: ignore[arg-type]  # as a consumer gives them
        for m in consume(kafka, dead)
    ]
    assert letters(found, topics) == expected
    if tiered:
        sent = Counter(each.to for each in trial.outcomes if each.what == "retry")
        assert sent == {"short": len(consume(kafka, short)), "long": len(consume(kafka, long))}
    else:
        # A key that is held keeps its order.
        for key in ("late", "never", "raises", "again"):
            assert [i for i, k in real.noted if k == key] == [
                i for i, k in tried.noted if k == key
            ]
    kept = rows(effects)
    assert kept == _effects_of_a_trial(effects, plan)


def _effects_of_a_trial(dsn: str, plan: Plan) -> list[str]:
    with psycopg.connect(dsn) as conn:
        conn.execute("TRUNCATE effects")
    trial = Trial(Handler(), begin=lambda: psycopg.connect(dsn), inbox=Inbox("another"), plan=plan)
    trial.feed(*events("orders"))
    trial.finish()
    return rows(dsn)
