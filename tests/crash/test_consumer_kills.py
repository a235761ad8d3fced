"""Consumers are killed, paused and added under load; their effects are counted afterwards."""

import os
import random
import signal
from collections import Counter
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer

from outbox.envelope import encode
from tests.support.consuming import committed, event, member, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient, until

KILLS = int(os.environ.get("DOVECOTE_TEST_CONSUMER_KILLS", "2"))
SKEW = 100
KEYS = [f"k{n}" for n in range(40)]
PER_KEY = 60

HANDLER = """
import os, threading

notes = os.open("handled", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def handle(event):
    threading.Event().wait(0.004)
    os.write(notes, f"{event.id}\\n".encode())  # one write, which a kill does not split
"""


def configure(folder: Path, kafka: str, topic: str) -> None:
    (folder / "handling.py").write_text(HANDLER)
    (folder / "c.toml").write_text(
        f'topics = ["{topic}"]\ngroup = "{topic}"\nhandler = "handling:handle"\n'
        f'concurrency = 4\nmax_skew = {SKEW}\nbatch_size = 20\ncommit_every = "100ms"\n'
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n"session.timeout.ms" = 6000\n'
    )


def handled(folder: Path) -> list[str]:
    notes = folder / "handled"
    return notes.read_text().split() if notes.exists() else []


def has_handled(folder: Path, records: int, all_of_them: int) -> bool:
    ids = handled(folder)
    return len(ids) > records or len(set(ids)) == all_of_them


def test_killed_again_and_again_it_loses_nothing_keeps_the_order_and_repeats_little(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name, kafka = topic(2), stack.kafka.bootstrap
    configure(tmp_path, kafka, name)
    fill_with_gaps(kafka, name)
    expected = {f"{key}-{n}" for n in range(PER_KEY) for key in KEYS}
    dice = random.Random(5)
    with ExitStack() as members:
        other = members.enter_context(member(tmp_path))
        for kill in range(KILLS):
            with member(tmp_path) as process:
                wanted = len(handled(tmp_path)) + 150
                until(
                    partial(has_handled, tmp_path, wanted, len(expected)),
                    within=40,
                    what=f"progress before kill {kill + 1}",
                )
                victim = dice.choice([process, other])
                victim.kill()
                victim.wait(patient(10))
            if other.poll() is not None:
                other = members.enter_context(member(tmp_path))
        until(lambda: set(handled(tmp_path)) == expected, within=60, what="everything handled")
    ids = handled(tmp_path)
    for key in KEYS:
        of_key = [int(each.split("-")[1]) for each in ids if each.startswith(f"{key}-")]
        # A repetition begins again somewhere before, and goes on in order from there.
        firsts = list(dict.fromkeys(of_key))
        assert firsts == sorted(firsts), key
        assert all(b <= a + 1 for a, b in pairwise(of_key)), key
    repeated = sum(count - 1 for count in Counter(ids).values())
    assert repeated <= KILLS * 2 * (SKEW + 20)


def fill_with_gaps(kafka: str, name: str) -> None:
    """Fill the topic in transactions, some of them aborted, so that offsets have gaps."""
    for part in range(3):
        producer = Producer(
            {
                "bootstrap.servers": kafka,
                "transactional.id": f"{name}-{part}",
                "partitioner": "murmur2_random",
            }
        )
        producer.init_transactions(patient(20))
        numbers = range(part * PER_KEY // 3, (part + 1) * PER_KEY // 3)
        for number in numbers:
            producer.begin_transaction()
            for key in KEYS:
                encoded, value, headers = encode(event(name, key, number))
                producer.produce(name, value, encoded, headers=headers)  # type: ignore[arg-type]  # invariant list, only read
            producer.commit_transaction(patient(20))
        producer.begin_transaction()
        for key in KEYS:
            encoded, value, headers = encode(event(name, key, 1_000_000))
            producer.produce(name, value, encoded, headers=headers)  # type: ignore[arg-type]  # invariant list, only read
        producer.flush(patient(20))
        producer.abort_transaction(patient(20))


def test_a_paused_consumer_that_wakes_up_commits_nothing_of_what_it_has_lost(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    configure(tmp_path, kafka, name)
    produce(kafka, *(event(name, key, n) for n in range(5) for key in KEYS))
    with member(tmp_path) as paused:
        until(lambda: len(handled(tmp_path)) > 20, within=30, what="some handled")
        paused.send_signal(signal.SIGSTOP)
        with member(tmp_path):
            until(lambda: committed(kafka, name)[0] == 200, within=40, what="taken over")
            # The paused member does not know what the other one reads next.
            produce(kafka, *(event(name, key, 5) for key in KEYS))
            until(lambda: committed(kafka, name)[0] == 240, within=30, what="gone on")
            paused.send_signal(signal.SIGCONT)
            produce(kafka, *(event(name, key, 6) for key in KEYS))
            until(lambda: committed(kafka, name)[0] == 280, within=30, what="both")
    assert committed(kafka, name)[0] == 280
    assert set(handled(tmp_path)) == {f"{key}-{n}" for n in range(7) for key in KEYS}
