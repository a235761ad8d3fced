"""Several consumers under one parent: `processes = N`."""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dovecote.devstack.places import free_port
from tests.support.consuming import committed, end_of, event, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.observing import fired, observing, of_parts, require_data
from tests.support.parents import Crew, alive, crew
from tests.support.waiting import patient, until

HANDLER = """
import os

def handle(event):
    with open(f"handled-{os.getpid()}", "a", encoding="utf-8") as out:
        out.write(event.id + "\\n")
"""

CONSUMER = """
group = "{topic}"
topics = ["{topic}"]
handler = "its_handler:handle"
processes = 2
commit_every = "100ms"

[http]
port = {port}

[kafka]
"bootstrap.servers" = "{bootstrap}"
"session.timeout.ms" = "6000"
"heartbeat.interval.ms" = "500"
"topic.metadata.refresh.interval.ms" = "1000"
"""


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@contextmanager
def consumers(folder: Path, kafka: str, topic: str, text: str = CONSUMER) -> Iterator[Crew]:
    (folder / "its_handler.py").write_text(HANDLER)
    port = free_port()
    (folder / "consume.toml").write_text(text.format(topic=topic, bootstrap=kafka, port=port))
    with crew(folder, ["consume", "run", "--config", "consume.toml"], port) as made:
        yield made


def shows_up(made: Crew, *ups: str) -> str:
    """Return the metrics, if they show of each process that it is up or not."""
    text = made.metrics()
    lines = [f'dovecote_process_up{{process="{number}"}} {up}.0' for number, up in enumerate(ups)]
    return text if all(line in text for line in lines) else ""


def handled(folder: Path) -> dict[int, list[str]]:
    """Return the ids of the handled events, by the process that handled them."""
    return {
        int(file.name.partition("-")[2]): file.read_text().split()
        for file in folder.glob("handled-*")
    }


def all_handled(folder: Path) -> set[str]:
    return {each for some in handled(folder).values() for each in some}


def test_a_killed_process_is_started_again_and_every_event_is_handled(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(4)
    events = [event(name, f"k{n % 40}", n) for n in range(200)]
    produce(kafka, *events)
    with consumers(tmp_path, kafka, name) as made:
        made.gets_ready()
        until(lambda: len(made.children()) == 2, within=10, what="two processes")
        until(
            lambda: {each.id for each in events} <= all_handled(tmp_path),
            within=60,
            what="all handled",
        )
        text = until(lambda: shows_up(made, "1", "1"), within=20, what="both answer")
        assert text.count("# TYPE dovecote_consumer_records_total counter") == 1

        victim = made.children()[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: not made.ready()["ok"], within=20, what="that it is said")
        more = [event(name, f"k{n % 40}", n) for n in range(200, 400)]
        produce(kafka, *more)
        made.gets_ready()
        assert len(made.children()) == 2
        assert victim not in made.children()
        until(
            lambda: {each.id for each in more} <= all_handled(tmp_path),
            within=90,
            what="all of the rest handled",
        )
        assert "dovecote_process_restarts_total" in made.metrics()
        assert 'dovecote_process_restarts_total{process="0"} 1.0' in made.metrics()
        children = made.children()
        assert made.end() == 0, made.log.read_text()
        assert not [pid for pid in children if alive(pid)]
    ends = [end_of(kafka, name, number) for number in range(4)]
    assert [committed(kafka, name, partition=number)[0] for number in range(4)] == ends
    log = made.log.read_text()
    assert "process 0 was ended by SIGKILL; it is started again in 1 s" in log
    assert "dovecote[1]: " in log, "each line names its process"


def test_processes_share_the_partitions(kafka: str, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(4)
    sent: list[str] = []
    with consumers(tmp_path, kafka, name) as made:
        made.gets_ready()

        def both_have_some() -> bool:
            events = [event(name, f"k{n}", n) for n in range(len(sent), len(sent) + 40)]
            produce(kafka, *events)
            sent.extend(each.id for each in events)
            return len(handled(tmp_path)) == 2

        until(both_have_some, within=60, what="that each has partitions")
        until(lambda: set(sent) <= all_handled(tmp_path), within=60, what="all handled")
        assert made.end() == 0
    assert set(sent) == all_handled(tmp_path)


def test_static_members_without_partitions_are_ready_and_come_back(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    """More processes than partitions, each with an identity of its own in the group."""
    name = topic(1)
    text = CONSUMER.replace("processes = 2", 'processes = 3\ninstance = "pod-1"')
    with consumers(tmp_path, kafka, name, text) as made:
        made.gets_ready()
        os.kill(made.children()[1], signal.SIGKILL)
        until(lambda: not made.ready()["ok"], within=20, what="that it is said")
        made.gets_ready()
        events = [event(name, f"k{n}", n) for n in range(40)]
        produce(kafka, *events)
        until(
            lambda: {each.id for each in events} <= all_handled(tmp_path),
            within=60,
            what="all handled",
        )
        assert made.end() == 0, made.log.read_text()
    assert "fenced" not in made.log.read_text().lower()


def test_processes_end_gracefully_when_their_parent_is_killed(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    with consumers(tmp_path, kafka, topic(2)) as made:
        made.gets_ready()
        children = made.children()
        assert len(children) == 2
        made.process.kill()
        made.process.wait()
        until(
            lambda: not [pid for pid in children if alive(pid)],
            within=60,
            what="that both have ended",
        )
    assert made.log.read_text().count(": stopped") == 2, "they left their group"


def test_a_process_that_cannot_begin_ends_all_with_its_status(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    wrong = CONSUMER.replace("its_handler:handle", "its_handler:nobody")
    with consumers(tmp_path, kafka, topic(), wrong) as made:
        assert made.process.wait(patient(60)) == 2
    log = made.log.read_text()
    assert "nobody" in log
    assert "ended with status 2 before it had begun" in log


def test_a_stopped_process_is_said_and_its_parent_answers(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    with consumers(tmp_path, kafka, topic(2)) as made:
        made.gets_ready()
        stopped = made.children()[0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            until(
                lambda: "process 0: it runs, and has not answered" in made.ready()["reason"],
                within=40,
                what="that it is said",
            )
            until(lambda: shows_up(made, "0", "1"), within=20, what="one alone answers")
        finally:
            os.kill(stopped, signal.SIGCONT)
        made.gets_ready()
        assert made.end() == 0


def test_a_process_that_ends_again_and_again_fires_its_alert(
    kafka: str, topic: MakeTopic, tmp_path: Path
) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with observing(folder) as prometheus, consumers(tmp_path, kafka, topic(2)) as made:
        made.gets_ready()
        prometheus.watch({"dovecote-consumer": [made.port]})
        own = {
            name: expr
            for name, expr in of_parts("process_").items()
            if "dovecote_process_" in expr and "== 0" not in expr
        }
        assert own
        require_data(prometheus, own)

        def fires() -> bool:
            for pid in made.children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return ("ProcessRestarting", "dovecote-consumer") in fired(prometheus)

        until(fires, within=60, what="the alert")
        assert made.end() == 0, made.log.read_text()
