"""`compose/`: containers of Postgres, Kafka, two relays, push and a service, as documented."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from devstack.places import free_port
from tests.idle_push import Client
from tests.waiting import until

FILE = Path(__file__).parents[2] / "compose" / "compose.yaml"
IMAGES = ("postgres:17", "apache/kafka:4.2.0", "python:3.11-slim")
FLIGHTS = 500


def said(*command: str, within: float = 60.0) -> str:
    """Return what a command prints; fail with all it said when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=within, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


pytestmark = [pytest.mark.containers(*IMAGES), pytest.mark.timeout(600)]


class Project:
    """One run of the compose file, under a name of its own."""

    def __init__(self) -> None:
        self.name = f"dovecote-{uuid4().hex[:8]}"

    def compose(self, *arguments: str, within: float = 60.0) -> str:
        return said("docker-compose", "-p", self.name, "-f", str(FILE), *arguments, within=within)

    def container(self, service: str) -> str:
        return self.compose("ps", "-q", service).strip()

    def health(self, service: str) -> str:
        return said(
            "docker", "inspect", "--format", "{{.State.Health.Status}}", self.container(service)
        ).strip()

    def committed(self) -> int:
        """Return how many events the service has committed, by its own table."""
        query = "SELECT count(*) FROM flight_ops.event_log"
        command = ("psql", "-U", "postgres", "-tAc", query)
        return int(said("docker", "exec", self.container("postgres"), *command))

    def published(self) -> list[str]:
        """Return the ids of all records that a `read_committed` consumer sees."""
        lines = said(
            "docker",
            "exec",
            self.container("kafka"),
            "/opt/kafka/bin/kafka-console-consumer.sh",
            *("--bootstrap-server", "localhost:9092", "--topic", "flights", "--from-beginning"),
            *("--isolation-level", "read_committed", "--timeout-ms", "8000"),
            *("--formatter-property", "print.value=true"),
        ).splitlines()
        return [line for line in lines if line.startswith("{")]


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    if shutil.which("docker-compose") is None:
        pytest.skip("there is no docker-compose: install it")
    monkeypatch.setenv("DOVECOTE_FLIGHTS", str(FLIGHTS))
    monkeypatch.setenv("DOVECOTE_PUSH_PORT", str(free_port()))
    monkeypatch.setenv("DOVECOTE_BUILD_NETWORK", os.environ.get("DOVECOTE_BUILD_NETWORK", "host"))
    project = Project()
    try:
        project.compose("build", within=400)
        project.compose("up", "-d", within=200)
        yield project
    finally:
        project.compose("down", "--volumes", within=120)


def test_everything_gets_healthy_and_a_killed_relay_is_replaced_with_nothing_lost(
    project: Project,
) -> None:
    for service in ("postgres", "kafka", "relay", "standby", "push"):
        until(
            lambda service=service: project.health(service) == "healthy",  # type: ignore[misc]  # bound early
            within=120,
            what=f"{service} healthy",
        )
    push = Client(int(os.environ["DOVECOTE_PUSH_PORT"]), "dovecote")
    assert push("GET", "/subscriptions").body == []
    said("docker", "kill", project.container("relay"))
    service = project.container("service")
    assert said("docker", "wait", service, within=120).strip() == "0"
    wanted = project.committed()
    assert wanted > FLIGHTS
    found: list[str] = []

    def arrived() -> bool:
        found[:] = project.published()
        return len(found) >= wanted

    until(arrived, within=120, what=f"{wanted} records")
    assert len(found) == len(set(found)) == wanted
