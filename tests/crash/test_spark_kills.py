"""
Jobs that are killed at any moment write what they would have written, once.

Deduplication, recirculation and pairing run in one Spark, over a broker of their own. Driver, JVM,
Python workers and the broker are killed at random. The expected contents of the topics are
computed only from what was sent. `DOVECOTE_KILLS_OF_SPARK=100` makes it long.
"""

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from dedup.rules.identity import identity
from dovecote.devstack import Stack
from outbox.envelope import ID, TYPE
from tests.crash.spark_storm import PATIENCE, storm
from tests.spark.fix_spark import as_record
from tests.support.fix_stack import MakeTopic, new_topics
from tests.support.waiting import consume, patient, until

KILLS = int(os.environ.get("DOVECOTE_KILLS_OF_SPARK", "4"))
USERS, CALLS = 6, max(10, KILLS)
ATTEMPTS = 3
T0 = 1_700_000_000_000

JOBS = """
[kafka]
"bootstrap.servers" = "{kafka}"
[source]
topics = {source}
starting_offsets = "earliest"
[output]
topic = "{output}"
dead_letter_topic = "{dead}"
{own_output}
[state]
buckets = 3
[spark]
query = "{query}"
checkpoint = "{folder}/{query}"
shuffle_partitions = 2
trigger = "300ms"
[operator]
{operator}
"""


class Event(NamedTuple):
    """One side of a call: its time, and how often it fails or asks to come again."""

    id: str
    type: str
    user: str
    call: int
    at: int
    again: int
    fails: int

    @property
    def is_dead(self) -> bool:
        return self.fails >= ATTEMPTS

    @property
    def rounds(self) -> int:
        return self.again + min(self.fails, ATTEMPTS - 1)

    def value(self) -> dict[str, Any]:
        return {**self._asdict(), "after": 200}


class Topics(NamedTuple):
    """All topics that are read and written."""

    main: str
    retry: str
    dead: str
    left: str
    came: str
    pairs: str
    pairs_dead: str
    late: str


def events(dice: random.Random) -> list[Event]:
    found = []
    for user in range(USERS):
        for call in range(CALLS):
            for type_, later in (("Left", 0), ("Came", 30_000)):
                found.append(
                    Event(
                        id=f"{user}-{call}-{type_}",
                        type=type_,
                        user=f"u{user}",
                        call=call,
                        at=T0 + call * 600_000 + later,
                        again=dice.choice([0, 0, 0, 1, 2]),
                        fails=dice.choice([0, 0, 0, 1, 2, 9]),
                    )
                )
    return found


def pairs(sent: list[Event]) -> Counter[str]:
    """Return the expected results of pairing for the handled events."""
    calls: dict[tuple[str, int], dict[str, Event]] = {}
    for event in sent:
        if not event.is_dead:
            calls.setdefault((event.user, event.call), {})[event.type] = event
    return Counter(
        json.dumps(
            {
                "user": user,
                "ts": min(side.at for side in sides.values()),
                "left": sides["Left"].call if "Left" in sides else None,
                "came": sides["Came"].call if "Came" in sides else None,
            }
        )
        for (user, _), sides in calls.items()
    )


def files(stack: Stack, folder: Path, topics: Topics) -> list[str]:
    """Write the settings of the jobs; return their paths."""
    common = {"kafka": stack.kafka.bootstrap, "folder": folder}
    dedup = JOBS.format(
        **common,
        source=json.dumps([topics.main]),
        output=topics.left,
        dead=topics.dead,
        own_output=f'retry_topic = "{topics.retry}"\nby_type = {{ Came = "{topics.came}" }}',
        query="storm",
        operator='type = "exact"\nremember = "1h"\n'
        'handler = "tests.unit.spark_jobs.handlers:until_finished"\n'
        f'[retry]\nmax_attempts = {ATTEMPTS}\nbase = "300ms"\n'
        '[recirculation]\nrun = "together"\ntrigger = "500ms"',
    )
    pairing = JOBS.format(
        **common,
        source=json.dumps([topics.left, topics.came]),
        output=topics.pairs,
        dead=topics.pairs_dead,
        own_output=f'late_topic = "{topics.late}"',
        query="pairs",
        operator='type = "pairing"\nkey = ["user"]\nevent_time = "at"\nwithin = "60s"\n'
        'grace = "24h"\nclose_after = "off"\n[operator.sides]\n'
        f'left = {{ topic = "{topics.left}", field = "call" }}\n'
        f'came = {{ topic = "{topics.came}", field = "call" }}',
    )
    paths = [folder / "dedup.toml", folder / "pairing.toml"]
    for path, text in zip(paths, (dedup, pairing), strict=True):
        path.write_text(text)
    return [str(path) for path in paths]


@pytest.fixture
def topics(module_stack: Stack) -> Iterator[Topics]:
    def made(make: MakeTopic) -> Topics:
        # Results have the times of their calls; by those, the broker would delete them meanwhile.
        pairs = make(2, retention_ms="-1")
        return Topics(make(2), make(), make(), make(2), make(2), pairs, make(), make())

    with new_topics(module_stack) as make:
        yield made(make)


def _ids(stack: Stack, topic: str) -> Counter[tuple[str, int]]:
    found = consume(stack.kafka.bootstrap, topic, within=60)
    return Counter(identity(as_record(message))[1:] for message in found)


def _send(stack: Stack, topic: str, batch: list[Event]) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    for each in batch:
        headers: list[tuple[str, str | bytes | None]] = [
            (ID, each.id.encode()),
            (TYPE, each.type.encode()),
        ]
        producer.produce(topic, json.dumps(each.value()).encode(), each.user, headers=headers)
    assert producer.flush(patient(60)) == 0


@pytest.mark.timeout(max(900, 60 * KILLS))
def test_kills_at_any_moment_change_nothing_of_what_is_written(
    module_stack: Stack, topics: Topics, tmp_path: Path
) -> None:
    dice = random.Random(KILLS)
    sent, pause = events(dice), threading.Event()
    queue = sorted([*sent, *dice.sample(sent, len(sent) // 3)], key=lambda _: dice.random())
    kinds = ["worker", "broker", "jvm", "driver"]
    # Kinds that end the process cost a start of Spark; the others do as much harm.
    plan = [*kinds, *dice.choices(kinds, [4, 3, 1, 1], k=KILLS)][:KILLS]
    share = -(-len(queue) // (len(plan) + 1))
    arguments = ["together", *files(module_stack, tmp_path, topics)]
    with storm(module_stack, tmp_path, arguments, dice) as jobs:
        for what in plan:
            _send(module_stack, topics.main, queue[:share])
            queue = queue[share:]
            until(jobs.is_up, within=PATIENCE, what="a batch since the last kill")
            pause.wait(dice.uniform(0, 1.5))
            jobs.kill(what)
        _send(module_stack, topics.main, queue)

        def completed() -> bool:
            jobs.is_up()
            pause.wait(1)
            found = sum(_ids(module_stack, t).total() for t in (topics.left, topics.came))
            return found + _ids(module_stack, topics.dead).total() >= len(sent)

        until(completed, within=PATIENCE, what="all events are handled or dead")
        # One more event of each user, long after, closes all of its calls.
        last = T0 + CALLS * 600_000 + 100 * 3_600_000
        closing = [Event(f"end-{n}", "Left", f"u{n}", -1, last, 0, 0) for n in range(USERS)]
        _send(module_stack, topics.main, closing)
        expected = pairs(sent)

        def closed() -> bool:
            jobs.is_up()
            pause.wait(1)
            return len(consume(module_stack.kafka.bootstrap, topics.pairs)) >= expected.total()

        until(closed, within=PATIENCE, what="all calls are closed")

    done = {(event.id, event.rounds): 1 for event in sent if not event.is_dead}
    ends = {(event.id, 0): 1 for event in closing}
    handled = _ids(module_stack, topics.left) + _ids(module_stack, topics.came)
    assert handled == Counter(done | ends)
    assert _ids(module_stack, topics.dead) == Counter(
        (event.id, event.rounds) for event in sent if event.is_dead
    )
    rounds = Counter((event.id, n + 1) for event in sent for n in range(event.rounds))
    assert _ids(module_stack, topics.retry) == rounds
    main = _ids(module_stack, topics.main)
    assert Counter({mark: count for mark, count in main.items() if mark[1]}) == rounds
    said = consume(module_stack.kafka.bootstrap, topics.pairs)
    assert Counter(json.dumps(json.loads(each.value() or b"")) for each in said) == expected
    for nothing in (topics.pairs_dead, topics.late):
        assert not _ids(module_stack, nothing)
    assert sum(jobs.killed.values()) == KILLS
    print(f"{dict(jobs.killed)}, {jobs.starts} starts")  # noqa: T201  # for the long one
