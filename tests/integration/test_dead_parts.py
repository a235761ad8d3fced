"""`dovecote dead`: one letter in each kind of part, listed together, requeued once, or dropped."""

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from dedup.rules.policies.results import Dead, Result
from dovecote.observe.dead import letters as parts
from dovecote.observe.dead.shapes import Failure, Selection
from outbox import Event
from tests.support.consuming import consuming, event, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.given_up import Buried, Watched, bury
from tests.support.idle_push import TOKEN, Client, idle, push_settings
from tests.support.idle_push import installed as push_installed
from tests.support.parking import listed
from tests.support.relaying import Relays, commit, installed, relays
from tests.support.topics import alter_topic
from tests.support.waiting import consume, patient, until

COMMAND = str(Path(sys.executable).with_name("dovecote"))


@dataclass
class World:
    """One part of each kind, each with a letter."""

    watched: Watched
    fleet: Relays
    orders: str
    dead: str
    group: str
    retry: str
    requeued: str
    parked: str


@pytest.fixture
def world(stack: Servers, database: str, topic: MakeTopic, tmp_path: Path) -> Iterator[World]:
    """A real consumer gives up, a real relay parks; push and Spark have letters of theirs."""
    bootstrap = stack.kafka.bootstrap
    orders, dead, clicks = topic(1), topic(2), topic(1)
    retry, clicks_dead, shop = topic(1), topic(1), topic(1, max_message_bytes="3000")
    sub = f"slack-{uuid.uuid4().hex[:8]}"
    with (
        relays(tmp_path, installed(database), bootstrap) as fleet,
        push_installed(database),
        idle(push_settings(database, bootstrap)) as (running, _),
    ):
        produce(bootstrap, event(orders, "o", 1))
        given_up = {"dead_letter_topic": dead, "max_attempts": 1}
        with consuming(
            bootstrap, orders, lambda _: Dead("no such order"), retries=given_up
        ) as consumer:
            consumer.has_handled(1)
            until(lambda: len(consume(bootstrap, dead)) == 1, within=20, what="a dead letter")
        bury(bootstrap, clicks_dead, clicks, [Buried("click-1", key="c", type="Clicked")])
        api = Client(running.at.port)
        subscription = {"id": sub, "topics": [orders], "endpoint": {"url": "https://a.example/x"}}
        assert api("POST", "/subscriptions", subscription).status == 201
        push_dead, requeued = f"dovecote.push.{sub}.dead", f"dovecote.push.{sub}.requeued"
        topic_named(bootstrap, push_dead, requeued)
        bury(
            bootstrap, push_dead, orders, [Buried("hook-1", reason="503 from the endpoint")],
            group=f"dovecote.push.{sub}",
        )  # fmt: skip
        large = Event(topic=shop, type="Large", key="big", value=" " * 4_999)
        fleet.active(kafka={"compression.type": "none"}, lease="1s")
        commit(fleet.dsn, large)
        until(lambda: len(listed(fleet)) == 1, within=30, what="one is parked")
        file = tmp_path / "watch.toml"
        file.write_text(
            f"""
[kafka]
"bootstrap.servers" = "{bootstrap}"
[sources.outbox.shop]
dsn = {{ env = "OUTBOX_DSN" }}
name = "{fleet.name}"
[sources.consumer.shipping]
topics = ["{orders}"]
group = "{orders}"
retries = {{ dead_letter_topic = "{dead}" }}
[sources.consumer.other]
topics = ["{clicks}"]
group = "other"
[sources.spark.sessions]
source = {{ topics = ["{clicks}"] }}
output = {{ dead_letter_topic = "{clicks_dead}", retry_topic = "{retry}" }}
[sources.push.main]
url = "http://127.0.0.1:{running.at.port}"
token = {{ env = "PUSH_TOKEN" }}
"""
        )
        watched = Watched(file, {"OUTBOX_DSN": fleet.dsn, "PUSH_TOKEN": TOKEN})
        yield World(watched, fleet, orders, dead, sub, retry, requeued, large.id)


def topic_named(bootstrap: str, *names: str) -> None:
    """Make topics with names of push's own."""
    from dovecote.observe.topics import TopicAdmin

    admin = TopicAdmin({"bootstrap.servers": bootstrap})
    assert list(admin.create(names, partitions=1, replicas=1, config={})) == list(names)


def test_letters_of_all_parts_are_in_one_list_and_every_filter_selects(world: World) -> None:
    watched = world.watched
    found = {each["part"]: each for each in watched.listed()}
    hook = f"push/main/{world.group}"
    assert found.keys() == {"outbox/shop", "consumer/shipping", "spark/sessions", hook}
    assert found["consumer/shipping"]["reason"] == "no such order"
    assert found["consumer/shipping"]["place"].startswith(f"{world.dead}/")
    assert found[hook]["topic"] == world.orders
    assert found[hook]["value"] is None
    assert found["outbox/shop"]["id"] == world.parked
    times = [each["at"] for each in watched.listed()]
    assert times == sorted(times, reverse=True)

    assert watched.ids("--part", "consumer/shipping") == ["o-1"]
    assert watched.ids("--part", "push") == watched.ids("--part", hook) == ["hook-1"]
    assert watched.ids("--key", "c") == ["click-1"]
    assert watched.ids("--key", "big") == [world.parked]
    assert watched.ids("--type", "Clicked") == ["click-1"]
    assert watched.ids("--type", "Large") == [world.parked]
    assert sorted(watched.ids("--topic", world.orders)) == ["hook-1", "o-1"]
    assert watched.ids("--reason", "503 FROM") == ["hook-1"]
    assert watched.ids("--id", world.parked) == [world.parked]
    assert watched.ids("--id", "hook-1") == ["hook-1"]
    assert sorted(watched.ids("--where", '"total" in value and value.total > 4')) == [
        "click-1", "hook-1",
    ]  # fmt: skip
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert watched.ids("--since", soon) == []
    assert len(watched.ids("--until", soon, "--since", "2026-01-01")) == 4

    shown = watched.run("show", "hook-1")
    assert '{"total": 5}' in shown.output
    assert '"hook-1"' not in shown.output
    assert "no such order" in watched.run("show", "o-1").output
    assert watched.run("show", world.parked, "--json").exit_code == 0
    assert "no dead letter" in str(watched.run("show", "nothing").exception)


def test_pages_go_on_where_the_last_one_ended(world: World) -> None:
    settings, after, seen = world.watched.settings(), None, []
    while True:
        page = parts.page(settings, Selection(), 1, after)
        seen += [each.ref for each in page.letters]
        after = page.next
        if after is None:
            break
    assert seen == [each.ref for each in parts.page(settings, Selection()).letters]
    assert len(seen) == 4


def test_they_are_requeued_once_and_handled(world: World, stack: Servers) -> None:
    watched, bootstrap = world.watched, stack.kafka.bootstrap
    assert watched.run("requeue", "--yes").exception is not None  # nothing says which
    dry = watched.run("requeue", "--all", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert dry.output.count("would requeue") == 4
    refused = watched.run("requeue", "--all", input="n\n")
    assert str(refused.exception) == "nothing was done"
    assert "give --yes" in str(watched.run("requeue", "--all", input="").exception)
    assert len(watched.listed()) == 4

    shop = next(each for each in watched.listed() if each["part"] == "outbox/shop")["topic"]
    alter_topic(bootstrap, shop, max_message_bytes="10000")
    done = watched.run("requeue", "--all", "--json", input="y\n")
    assert done.exit_code == 0, done.output + repr(done.exception)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    fates = [json.loads(line) for line in lines]
    assert sorted(each["what"] for each in fates) == ["asked", "requeued", "requeued", "requeued"]
    until(lambda: len(consume(bootstrap, shop)) == 1, within=30, what="published")
    until(lambda: watched.listed() == [], within=20, what="nothing is left")
    assert len(consume(bootstrap, world.retry)) == 1
    assert len(consume(bootstrap, world.requeued)) == 1
    handled: list[str] = []

    def handle(given: Event) -> Result | None:
        handled.append(given.id)
        return None

    with consuming(bootstrap, world.orders, handle) as consumer:
        consumer.has_handled(1)
    assert handled == ["o-1"]
    again = watched.run("requeue", "--all", "--yes")
    assert "no such letter" in str(again.exception)


def test_they_are_dropped_and_gone(world: World) -> None:
    watched = world.watched
    done = watched.run("drop", "--all", "--yes", "--by", "ops")
    assert done.exit_code == 0, done.output + repr(done.exception)
    until(lambda: watched.listed() == [], within=20, what="nothing is left")


def test_a_part_that_is_away_is_said_beside_the_others(world: World) -> None:
    watched = world.watched
    text = watched.file.read_text().replace(
        "[sources.push.main]",
        '[sources.push.away]\nurl = "http://127.0.0.1:9"\n'
        '[sources.consumer.lost]\ntopics = ["x"]\ngroup = "x"\n'
        'retries = { dead_letter_topic = "nowhere.dead" }\n[sources.push.main]',
    )
    watched.file.write_text(text)
    done = watched.run("list")
    assert done.exit_code == 1
    assert str(done.exception).endswith("consumer/lost, push/away")
    assert "push/away cannot be asked: http://127.0.0.1:9 does not answer" in done.stderr
    assert "no topic 'nowhere.dead' that we may see" in done.stderr
    assert all(id_ in done.stdout for id_ in ("o-1", "hook-1", "click-1", world.parked))
    unknown = watched.run("list", "--part", "consumer/nobody")
    assert "no part 'consumer/nobody' in the settings; there is outbox/shop" in str(
        unknown.exception
    )
    assert "nobody" in str(watched.run("list", "--part", "push/main/nobody").stderr)
    bad = watched.run("list", "--where", "value.")
    assert "is not a Starlark expression" in str(bad.exception)
    # The letters of the others are requeued all the same, and the failure is said.
    done = watched.run("requeue", "--all", "--yes", "--part", "spark")
    assert done.exception is not None
    done = watched.run("requeue", "--part", "spark", "--part", "push/away", "--yes")
    assert done.exit_code == 1
    assert "requeued  spark/sessions" in done.stdout


def test_hostile_text_does_not_steer_a_terminal(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    watched = of_consumer(stack, topic, tmp_path)
    evil = "\x1b[2J\nrequeued  forged"
    bury(
        stack.kafka.bootstrap, dead_of(watched), "orders",
        [Buried("\x1b]0;x\x07", key="\x1b[31m", type="\u202eevil", reason=evil)],
    )  # fmt: skip
    for words in (["list"], ["show", "\x1b]0;x\x07"], ["drop", "--all", "--dry-run"]):
        done = watched.run(*words)
        assert done.exit_code == 0, repr(done.exception)
        assert not {"\x1b", "\x07", "\u202e"} & set(done.output)
        assert "\nrequeued  forged" not in done.output


def test_nothing_comes_twice_or_is_lost_after_kills_in_the_midst_of_a_requeue(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    watched, bootstrap, number = of_consumer(stack, topic, tmp_path), stack.kafka.bootstrap, 3_000
    retry, dead = topic(1), dead_of(watched)
    text = watched.file.read_text()
    watched.file.write_text(
        text.replace("retries = {", f'retries = {{ tiers = [{{ topic = "{retry}" }}],')
    )
    bury_fast(bootstrap, dead, number)
    words = [COMMAND, "dead", "requeue", "--all", "--yes", "--config", str(watched.file)]
    for moved in (1, 1_000):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(partial(has_moved, process, bootstrap, retry, moved), within=60, what="some are")
        finally:
            process.kill()
            process.wait(patient(10))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "no such letter" in done.stderr, done.stderr
    found = consume(bootstrap, retry)
    counts = Counter(dict(each.headers() or ())["ce_id"] for each in found)
    assert len(counts) == number
    assert set(counts.values()) == {1}
    order: dict[bytes, list[int]] = {}
    for each in found:
        order.setdefault(each.key() or b"", []).append(int(each.value() or b""))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert watched.listed() == []


def test_a_hundred_thousand_letters_are_listed_and_dropped_in_bounded_memory(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    watched, number = of_consumer(stack, topic, tmp_path, partitions=3), 100_000
    bury_fast(stack.kafka.bootstrap, dead_of(watched), number, size=500)
    program = (
        "import sys; from dovecote.cli.tree import app\n"
        "try: app()\n"
        "finally: sys.stderr.write(open('/proc/self/status').read())"
    )

    def run(*words: str) -> tuple[str, int]:
        done = subprocess.run(
            [sys.executable, "-c", program, "dead", *words, "--config", str(watched.file)],
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, int(done.stderr.rpartition("VmHWM:")[2].split()[0]) // 1024

    listing, peak = run("list", "--limit", "20")
    assert listing.count("  consumer/shipping  ") == 20
    assert peak < 200
    _, searched = run("list", "--reason", "is in no letter")
    assert searched < 200
    told, peak = run("drop", "--all", "--yes")
    assert told.count("dropped  ") == number
    assert peak < 300
    assert watched.listed() == []


def has_moved(process: subprocess.Popen[bytes], bootstrap: str, topic: str, least: int) -> bool:
    """Return whether so many records are in a topic, or the process has ended."""
    return process.poll() is not None or len(consume(bootstrap, topic)) >= least


def of_consumer(stack: Servers, topic: MakeTopic, folder: Path, partitions: int = 2) -> Watched:
    """Return the settings of one consumer."""
    file = folder / "watch.toml"
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "{stack.kafka.bootstrap}"\n'
        '[sources.consumer.shipping]\ntopics = ["orders"]\ngroup = "g"\n'
        f'retries = {{ dead_letter_topic = "{topic(partitions)}" }}\n'
    )
    return Watched(file, {})


def dead_of(watched: Watched) -> str:
    found = watched.settings().sources.consumer["shipping"].retries.dead_letter_topic
    assert found is not None
    return found


def bury_fast(bootstrap: str, topic: str, number: int, size: int = 0) -> None:
    """Write many letters, of ten keys; each value is its number."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
    )
    for each in range(number):
        headers = [
            ("ce_id", b"e%d" % each),
            ("ce_type", b"Placed"),
            ("dovecote_origin", b"orders/0/%d" % each),
            ("dovecote_error", b"timed out"),
            ("dovecote_attempt", b"3"),
        ]
        key, value = b"k%d" % (each % 10), (b"%d" % each).rjust(size)
        while True:
            try:
                producer.produce(topic, value, key, headers=headers)  # type: ignore[arg-type]  # only read
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(patient(60)) == 0


def test_a_failure_is_yielded_after_the_letters(world: World) -> None:
    world.watched.environ["PUSH_TOKEN"] = "wrong"  # noqa: S105  # as it says
    found = list(parts.letters(world.watched.settings(), Selection()))
    assert isinstance(found[-1], Failure)
    assert found[-1].part == "push/main"
    assert len(found) == 4
