"""Consumers with retry topics, dead letters and an inbox, on a real Kafka and Postgres."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from dedup.consumer import Consumer
from dedup.inbox import schema as inbox_schema
from dedup.retries.storm import Storm
from dedup.rules.policies.results import Again, Result, Retry
from dovecote.devstack import Stack
from outbox import Event, SchemaMissing
from outbox.envelope import ERROR, ORIGIN, Record, delivery
from tests.support.consuming import committed, consuming, end_of, event, produce, settings
from tests.support.fix_stack import MakeTopic, Servers, new_topics
from tests.support.waiting import consume, patient, until

Handle = Callable[[Event, Any], Any]

SWIFT = {"base": "20ms", "ceiling": "50ms", "max_attempts": 3}


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@pytest.fixture
def inbox(database: str) -> dict[str, str]:
    """The settings of an inbox, with a table of effects beside it."""
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (nr bigserial, id text)")
    return {"dsn": without_password(database)}


@pytest.fixture(autouse=True)
def _password(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", password_of(stack.postgres.dsn))


def password_of(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn).get("password", ""))


def without_password(dsn: str) -> str:
    parts = {
        k: str(v) for k, v in psycopg.conninfo.conninfo_to_dict(dsn).items() if k != "password"
    }
    return psycopg.conninfo.make_conninfo(**parts)


@contextmanager
def handling(bootstrap: str, name: str, handle: Handle, **given: Any) -> Iterator[None]:
    """Run a consumer whose handler takes a transaction, too."""
    consumer = Consumer(settings(bootstrap, name, **given), handle)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.run)
        try:
            yield
        finally:
            consumer.stop()
        running.result(patient(40))


def effects(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM effects ORDER BY nr").fetchall()]


def read(bootstrap: str, topic: str) -> list[Record]:
    return [
        Record(m.topic(), m.partition(), m.offset(), 0, m.key(), m.value(), m.headers() or ())  # type: ignore[arg-type]  # as a consumer gives them
        for m in consume(bootstrap, topic)
    ]


def test_poison_becomes_dead_letters_that_say_why_and_no_key_waits_for_another(
    kafka: str, topic: MakeTopic
) -> None:
    name, dead = topic(), topic()
    large = b'"' + b"x" * 900_000 + b'"'
    produce(
        kafka,
        event(name, "unreadable", 0, b"{"),
        event(name, "failing", 0),
        event(name, "failing", 1),
        event(name, "large", 0, large),
        *(event(name, f"k{n % 20}", n) for n in range(100)),
    )

    def handle(given: Event) -> None:
        if given.id in {"failing-0", "large-0"}:
            raise LookupError(given.id)

    with consuming(kafka, name, handle, retries={"dead_letter_topic": dead, **SWIFT}) as run:
        until(lambda: committed(kafka, name)[0] == 104, within=20, what="all committed")
        assert run.count("records_total", result="dead_letter") == 3
    letters = {str(letter.key, "ascii"): letter for letter in read(kafka, dead) if letter.key}
    assert letters.keys() == {"unreadable", "failing", "large"}
    assert [delivery(letters[key]).attempt for key in ("unreadable", "failing")] == [1, 3]
    assert b"is not JSON" in (dict(letters["unreadable"].headers)[ERROR] or b"")
    reason = dict(letters["failing"].headers)[ERROR] or b""
    assert reason.startswith(b"LookupError: failing-0 (test_consumer_retries.py:")
    assert dict(letters["failing"].headers)[ORIGIN] == f"{name}/0/1".encode()
    assert letters["large"].value == large
    assert run.of_key("failing") == ["failing-0"] * 3 + ["failing-1"]


@pytest.mark.parametrize("awaited", [False, True])
def test_retry_topics_let_the_key_go_on_and_bring_the_record_back_when_it_is_due(
    kafka: str, topic: MakeTopic, *, awaited: bool
) -> None:
    name, short, long, dead = topic(), topic(), topic(), topic()
    produce(kafka, event(name, "a", 0), event(name, "a", 1), event(name, "b", 0))

    def handle(given: Event) -> Result | None:
        state = delivery(given)  # type: ignore[arg-type]  # an event keeps the headers of its record
        if given.id == "a-0" and state.attempt < 3:
            return Retry("no", timedelta(milliseconds=100 if state.attempt == 1 else 600))
        if given.id == "b-0" and state.round < 4:
            return Again(timedelta(milliseconds=20))
        return None

    tiers = [{"topic": short}, {"topic": long, "wait": "500ms"}]
    retries = {"dead_letter_topic": dead, "tiers": tiers, **SWIFT}
    with consuming(kafka, name, handle, awaited=awaited, retries=retries) as run:
        until(lambda: run.count("records_total", result="handled") == 3, within=20, what="done")
        until(
            lambda: run.count("records_total", result="retry") == 6, within=10, what="six retries"
        )
        until(lambda: committed(kafka, name)[0] == 3, within=10, what="all committed")
    # Kafka decides how soon the first copy comes; the second waits longer than a-1 can take.
    assert sorted(run.of_key("a")) == ["a-0", "a-0", "a-0", "a-1"]
    assert run.of_key("a")[0] == run.of_key("a")[-1] == "a-0"
    assert run.ids.count("b-0") == 5
    (waited,) = read(kafka, long)
    assert (delivery(waited).attempt, delivery(waited).round) == (3, 2)
    assert delivery(waited).origin == f"{name}/0/0"
    assert read(kafka, dead) == []


def test_a_dead_letter_topic_that_is_missing_holds_the_offset_back_and_others_go_on(
    kafka: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(kafka, event(name, "a", 0, b"{"), event(name, "a", 1), event(name, "b", 0))

    with consuming(kafka, name, retries={"dead_letter_topic": f"{name}.dead"}) as run:
        run.has_handled(1)
        until(lambda: "; create it" in caplog.text, within=20, what="it is said")
        assert run.ids == ["b-0"]
        assert committed(kafka, name)[0] in {-1001, 0}
    assert committed(kafka, name)[0] == 0


@pytest.mark.parametrize("awaited", [False, True])
def test_effects_happen_once_however_often_the_record_comes(
    kafka: str, topic: MakeTopic, inbox: dict[str, str], *, awaited: bool
) -> None:
    name = topic()
    once = [event(name, f"k{n % 3}", n) for n in range(9)]
    produce(kafka, *once)
    fails = {"k1-4"}

    def handle(given: Event, tx: psycopg.Connection) -> None:
        tx.execute("INSERT INTO effects (id) VALUES (%s)", [given.id])
        if given.id in fails:
            fails.clear()
            raise LookupError

    async def handle_awaited(given: Event, tx: psycopg.AsyncConnection) -> None:
        await tx.execute("INSERT INTO effects (id) VALUES (%s)", [given.id])
        if given.id in fails:
            fails.clear()
            raise LookupError

    for copies in range(2):
        produce(kafka, *(once if copies else ()))
        with handling(
            kafka,
            name,
            handle_awaited if awaited else handle,
            inbox=inbox,
            policy="every",
            retries=SWIFT,
        ):
            until(
                lambda: committed(kafka, name)[0] == end_of(kafka, name),
                within=20,
                what="all committed",
            )
    assert sorted(effects(inbox["dsn"])) == sorted(each.id for each in once)
    for key in ("k0", "k1", "k2"):
        of_key = [id_ for id_ in effects(inbox["dsn"]) if id_.startswith(key)]
        assert of_key == [each.id for each in once if each.key == key]


def test_attempts_and_waits_of_a_held_record_outlive_the_consumer(
    kafka: str, topic: MakeTopic, inbox: dict[str, str]
) -> None:
    name, dead = topic(), topic()
    produce(kafka, event(name, "a", 0), event(name, "a", 1))
    # Longer than it takes to end, so that each consumer has one attempt.
    wait = f"{patient(1):.0f}s"
    retries = {"dead_letter_topic": dead, "base": wait, "ceiling": wait, "max_attempts": 3}
    tries: list[str] = []

    def handle(given: Event, _: psycopg.Connection) -> Result | None:
        tries.append(given.id)
        return Retry("no") if given.id == "a-0" else None

    for attempts in (1, 2, 3):
        with handling(kafka, name, handle, inbox=inbox, retries=retries):
            until(lambda: len(tries) >= attempts, within=20, what="an attempt")  # noqa: B023  # used at once
            until(lambda: committed(kafka, name)[0] >= 0, within=20, what="it is held")
    assert tries[:3] == ["a-0"] * 3
    with handling(kafka, name, handle, inbox=inbox, retries=retries):
        until(lambda: committed(kafka, name)[0] == 2, within=20, what="all committed")
    (letter,) = read(kafka, dead)
    assert delivery(letter).attempt == 3
    assert tries == ["a-0"] * 3 + ["a-1"]


def test_a_consumer_without_its_inbox_says_what_to_do(
    kafka: str, topic: MakeTopic, database: str
) -> None:
    given = settings(kafka, topic(), inbox={"dsn": without_password(database)})
    with pytest.raises(SchemaMissing, match="dovecote init inbox"):
        Consumer(given, lambda _event, _tx: None).run()


def test_a_storm_stops_the_consumer_and_names_the_topic(kafka: str, topic: MakeTopic) -> None:
    name = topic()
    produce(kafka, *(event(name, None, 1) for _ in range(200)))

    with (
        pytest.raises(Storm, match=f"topic '{name}' holds"),
        consuming(kafka, name, retries={"amplification_limit": 5}) as run,
    ):
        until(lambda: run.failure is not None, within=20, what="its end")


def test_dead_servers_stop_no_other_key_lose_nothing_and_are_said(
    own_stack: Stack, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, postgres = own_stack.kafka, own_stack.postgres
    monkeypatch.setenv("PGPASSWORD", password_of(postgres.dsn))
    dsn = without_password(postgres.dsn)
    with psycopg.connect(dsn) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (nr bigserial, id text)")

    def handle(given: Event, tx: psycopg.Connection) -> None:
        tx.execute("INSERT INTO effects (id) VALUES (%s)", [given.id])
        if given.key == "bad":
            raise LookupError

    with new_topics(own_stack) as make:
        name, dead = make(), make()
        retries = {"dead_letter_topic": dead, **SWIFT}
        first = [event(name, f"k{n}", n) for n in range(5)]
        produce(kafka.bootstrap, *first)
        with handling(kafka.bootstrap, name, handle, inbox={"dsn": dsn}, retries=retries):
            until(lambda: len(effects(dsn)) == 5, within=20, what="five effects")
            postgres.kill()
            later = [event(name, f"k{n}", 10 + n) for n in range(5)]
            produce(kafka.bootstrap, *later, event(name, "bad", 0))
            until(lambda: "is away, and records wait" in caplog.text, within=20, what="said")
            postgres.start()
            # This is longer than all attempts would have taken, so none was used up.
            until(lambda: len(effects(dsn)) == 10, within=30, what="ten effects")
            until(lambda: len(read(kafka.bootstrap, dead)) == 1, within=20, what="the dead letter")
            kafka.kill()
            kafka.start()
            produce(kafka.bootstrap, event(name, "k0", 20))
            until(lambda: len(effects(dsn)) == 11, within=60, what="the last effect")
        assert sorted(effects(dsn)) == sorted([*(each.id for each in [*first, *later]), "k0-20"])
