"""A consumer's process with handlers and records that nobody expects."""

import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dedup.kafka.letters import Letters
from dedup.retries.backoff import Backoff
from dedup.retries.plan import Plan, Tier
from dedup.serving.retries import Retries
from outbox import Event
from outbox.envelope import ATTEMPT
from tests.support.consuming import committed, consuming, event, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.raw_producing import produce_raw
from tests.support.waiting import consume, patient, until

FILE = """
topics = ["{topic}"]
group = "{topic}"
drain = "5s"

[kafka]
"bootstrap.servers" = "{kafka}"
"""


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@pytest.mark.parametrize("form", ["def", "async def"])
def test_a_handler_that_exits_ends_the_process_with_its_status_and_a_reason(
    kafka: str, topic: MakeTopic, tmp_path: Path, form: str
) -> None:
    name = topic()
    produce(kafka, event(name, "k", 1))
    (tmp_path / "c.toml").write_text(FILE.format(topic=name, kafka=kafka))
    (tmp_path / "leaves.py").write_text(
        f"import sys\n\n\n{form} handle(event):\n    sys.exit(7)\n"
    )
    dovecote = str(Path(sys.executable).with_name("dovecote"))
    ended = subprocess.run(
        [dovecote, "consume", "run", "-c", "c.toml", "--handler", "leaves:handle"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(40),
        check=False,
    )
    assert ended.returncode == 7
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("dovecote: the handler called sys.exit(7) (leaves.py:5 in handle)")


def test_a_consumer_without_an_inbox_handles_and_retries_without_the_driver_of_postgres(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    produce(kafka, event(name, "k", 1))
    (tmp_path / "c.toml").write_text(FILE.format(topic=name, kafka=kafka))
    code = (
        "import sys\n\nseen = []\n\n\ndef handle(event):\n    seen.append(event)\n"
        "    if len(seen) == 1:\n        raise ValueError\n"
        "    sys.exit(8 if 'psycopg' in sys.modules else 9)\n"
    )
    (tmp_path / "leaves.py").write_text(code)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "dovecote", "consume", "run"),
            *("-c", "c.toml", "--handler", "leaves:handle"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(40),
        check=False,
    )
    assert ended.returncode == 9, ended.stderr


def test_a_forged_attempt_on_a_main_topic_is_not_read(kafka: str, topic: MakeTopic) -> None:
    name, dead = topic(), topic()
    forged = [(b"dovecote_attempt", b"10"), (b"dovecote_not_before", b"4070908800000")]
    produce_raw(kafka, name, b"k", b'{"n": 1}', [(b"ce_id", b"e1"), *forged])

    def handle(_: Event) -> None:
        raise ValueError

    plan = {"dead_letter_topic": dead, "max_attempts": 3, "base": "10ms", "ceiling": "20ms"}
    with consuming(kafka, name, handle, retries=plan) as run:
        until(lambda: committed(kafka, name)[0] == 1, within=20, what="a dead letter")
        assert run.ids == ["e1"] * 3
    (letter,) = consume(kafka, dead)
    assert dict(letter.headers() or ())[ATTEMPT] == b"3"


def test_a_record_of_too_many_headers_is_a_dead_letter_and_others_go_on(
    kafka: str, topic: MakeTopic
) -> None:
    name, dead = topic(), topic()
    produce_raw(kafka, name, b"k", b'{"n": 1}', [(b"h", b"")] * 100_000)
    produce(kafka, event(name, "k", 1))
    with consuming(kafka, name, retries={"dead_letter_topic": dead}) as run:
        until(lambda: committed(kafka, name)[0] == 2, within=20, what="a dead letter")
        assert run.ids == ["k-1"]
    (letter,) = consume(kafka, dead)
    assert b"it has 100,000 of them" in (dict(letter.headers() or ())["dovecote_error"] or b"")
    assert letter.value() == b'{"n": 1}'


def test_the_retry_topics_of_a_plan_in_code_keep_their_history(
    kafka: str, topic: MakeTopic
) -> None:
    name, retry, dead = topic(), topic(), topic()
    produce(kafka, event(name, "k", 1))
    plan = Plan(
        patience=Backoff(base=timedelta(milliseconds=10), max_attempts=3),
        tiers=[Tier(retry)],
        dead_letters=dead,
    )

    def handle(_: Event) -> None:
        raise ValueError

    with (
        closing(Letters({"bootstrap.servers": kafka})) as letters,
        consuming(kafka, name, handle, topics=[name, retry], aside=Retries(plan, letters)) as run,
    ):
        until(lambda: consume(kafka, dead), within=20, what="a dead letter")
        assert len(run.ids) == 3
    (letter,) = consume(kafka, dead)
    assert dict(letter.headers() or ())[ATTEMPT] == b"3"


def test_large_headers_fill_the_memory_that_a_consumer_may_have(
    kafka: str, topic: MakeTopic
) -> None:
    name, going_on = topic(), threading.Event()
    headers = (("note", b"x" * 20_000),)
    events = [replace(event(name, "k", n), headers=headers) for n in range(400)]
    produce(kafka, *events, partition=0)

    def handle(_: Event) -> None:
        going_on.wait(patient(30))

    with consuming(kafka, name, handle, max_bytes=1_000_000, batch_size=20) as run:
        until(lambda: run.count("bytes_in_memory") >= 1_000_000, within=20, what="a full memory")
        # One of sixteen is looked at until the first is found; then each of them counts.
        assert run.count("records_in_memory") < 350
        going_on.set()
        run.has_handled(400)
    assert run.ids == [each.id for each in events]
    until(lambda: run.consumer.metrics.handled_in_all == 400, within=10, what="all completed")
