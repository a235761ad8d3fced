"""Several processes under one parent: `processes = N` of the consumer and of push."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dovecote.devstack.places import free_port
from dovecote.push.api.access import hashed
from tests.support.consuming import committed, end_of, event, produce
from tests.support.delivering import Endpoint
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import Client, installed
from tests.support.observing import fired, observing, of_parts, require_data
from tests.support.waiting import patient, until

COMMAND = str(Path(sys.executable).with_name("dovecote"))
TOKEN = "of-the-test"  # noqa: S105  # as it says

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

PUSH = """
allow_addresses = ["127.0.0.0/8"]
poll = "200ms"
processes = 2

[http]
port = {port}

[brokers.default]
"bootstrap.servers" = "{bootstrap}"
"session.timeout.ms" = "6000"

[api.tokens]
ops = "{token}"
"""


class Crew:
    """A parent, with its processes and its log."""

    def __init__(
        self, folder: Path, arguments: list[str], port: int, environ: dict[str, str]
    ) -> None:
        self.folder, self.log = folder, folder / "log"
        self.port, self.api, self.stranger = port, Client(port, TOKEN), Client(port, None)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [COMMAND, *arguments],
                cwd=folder,
                env={**os.environ, **environ},
                stderr=out,
            )

    def children(self) -> list[int]:
        """Return the ids of the parent's processes."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in path.read_text().split()]

    def ready(self) -> dict[str, Any]:
        """Return what the parent says of all; nothing while it does not answer."""
        try:
            answer = self.api("GET", "/readyz")
        except OSError:
            return {"ok": False}
        return dict(answer.body)

    def metrics(self) -> str:
        answer = self.api("GET", "/metrics")
        assert answer.status == 200, answer
        return str(answer.body)

    def gets_ready(self, within: float = 60) -> None:
        until(
            lambda: self.ready()["ok"] or self.process.poll() is not None,
            within=within,
            what=f"all are ready: {self.log.read_text()}",
        )
        assert self.process.poll() is None, self.log.read_text()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(patient(60))


@contextmanager
def crew(folder: Path, arguments: list[str], port: int, **environ: str) -> Iterator[Crew]:
    made = Crew(folder, arguments, port, environ)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.terminate()
            made.process.wait(patient(60))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


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
        until(lambda: '_up{process="1"} 1.0' in made.metrics(), within=20, what="both answer")
        text = made.metrics()
        for number in "01":
            assert f'process="{number}"' in text
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
            assert 'dovecote_process_up{process="0"} 0.0' in made.metrics()
            assert 'dovecote_process_up{process="1"} 1.0' in made.metrics()
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


@pytest.fixture
def push(tmp_path: Path, database: str, kafka: str) -> Iterator[Crew]:
    port = free_port()
    text = PUSH.format(port=port, bootstrap=kafka, token=hashed(TOKEN))
    (tmp_path / "push.toml").write_text(text)
    with (
        installed(database) as dsn,
        crew(
            tmp_path, ["push", "serve", "--config", "push.toml"], port, DOVECOTE_PUSH_DSN=dsn
        ) as made,
    ):
        made.gets_ready()
        yield made


def test_push_has_one_api_for_all_its_processes(push: Crew, kafka: str, topic: MakeTopic) -> None:
    name = topic(4)
    with Endpoint() as endpoint:
        wanted = {"id": "hook", "topics": [name], "endpoint": {"url": endpoint.url}}
        made = push.api("POST", "/subscriptions", wanted)
        assert made.status == 201, made
        assert push.api("POST", "/subscriptions", wanted).status == 200
        odd = push.api("POST", "/subscriptions", {"id": "hook", "nonsense": "x" * 1000})
        assert odd.status == 422
        events = [event(name, f"k{n % 40}", n) for n in range(100)]
        produce(kafka, *events)
        endpoint.has_got(100, within=60)
        until(
            lambda: push.api("GET", "/subscriptions/hook").body["counts"]["delivered"] == 100,
            within=30,
            what="all counted",
        )
        assert push.api("GET", "/subscriptions?limit=1").status == 200
        text = push.metrics()
        assert 'process="0"' in text
        assert 'process="1"' in text

        os.kill(push.children()[0], signal.SIGKILL)
        until(
            lambda: push.api("GET", "/subscriptions/hook").status == 200,
            within=20,
            what="the API answers all the while",
        )
        produce(kafka, *(event(name, f"k{n % 40}", n) for n in range(100, 200)))
        until(
            lambda: len({request.event_id for request in endpoint.requests}) == 200,
            within=90,
            what="all delivered",
        )
        push.gets_ready()
        assert push.end() == 0, push.log.read_text()
    ids = {request.event_id for request in endpoint.requests}
    assert {each.id for each in events} < ids


def test_who_has_no_token_learns_nothing_from_the_parent(push: Crew) -> None:
    stranger = push.stranger
    for path in ("/subscriptions", "/subscriptions/hook", "/audit"):
        assert stranger("GET", path).status in {401, 403}, path
    assert stranger("GET", "/healthz").status == 200
    assert stranger("GET", "/readyz", Host="evil.example").status == 403
    big = stranger("POST", "/subscriptions", {"id": "x" * 300_000})
    assert big.status in {401, 413}
    page = stranger("GET", "/")
    assert page.status == 200
    with socket.create_connection(("127.0.0.1", push.port), patient(20)) as slow:
        slow.sendall(
            b"POST /subscriptions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"
        )
        assert slow.recv(1000).startswith(b"HTTP/1.1 401 "), "before it has sent its body"


def test_the_audit_log_has_the_address_of_the_client(push: Crew) -> None:
    with socket.create_connection(
        ("127.0.0.1", push.port), patient(20), source_address=("127.0.0.9", 0)
    ) as asked:
        asked.sendall(
            b"POST /subscriptions/nobody/pause HTTP/1.1\r\nhost: localhost\r\n"
            b"dovecote-caller: " + b"0" * 32 + b" 6.6.6.6\r\n"
            b"authorization: Bearer " + TOKEN.encode() + b"\r\ncontent-length: 0\r\n\r\n"
        )
        assert asked.recv(1000).startswith(b"HTTP/1.1 404 ")
    entry = until(lambda: push.api("GET", "/audit").body, within=10, what="an entry")[0]
    assert entry["address"] == "127.0.0.9"
