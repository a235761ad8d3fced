"""`compose/`: containers of Postgres, Kafka, two relays, push, a service and its Spark jobs."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from dovecote.devstack.places import free_port
from tests.support.idle_push import Client
from tests.support.waiting import patient, until

FILE = Path(__file__).parents[2] / "compose" / "compose.yaml"
IMAGES = ("postgres:17", "apache/kafka:4.2.0", "python:3.11-slim")
FLIGHTS = 500
WITHOUT_SPARK = ("relay", "standby", "push", "service")


def said(*command: str, within: float = 60.0) -> str:
    """Return the output of a command; if it fails, fail with all of its output."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(within), check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


pytestmark = [pytest.mark.containers(*IMAGES), pytest.mark.timeout(1_800)]


class Project:
    """One run of the compose file, under a name of its own."""

    def __init__(self) -> None:
        self.name = f"dovecote-{uuid4().hex[:8]}"

    def compose(self, *arguments: str, within: float = 60.0) -> str:
        whose = ("-p", self.name, "-f", str(FILE), "--profile", "spark")
        return said("docker-compose", *whose, *arguments, within=within)

    @cache  # noqa: B019  # a project is a test's; docker-compose takes a second to start
    def container(self, service: str) -> str:
        """Return the id of a service's only container, running or not."""
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


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """All services except the Spark jobs."""
    if shutil.which("docker-compose") is None:
        pytest.skip("there is no docker-compose: install it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOVECOTE_FLIGHTS", str(FLIGHTS))
        patch.setenv("DOVECOTE_PUSH_PORT", str(free_port()))
        patch.setenv("DOVECOTE_BUILD_NETWORK", os.environ.get("DOVECOTE_BUILD_NETWORK", "host"))
        project = Project()
        try:
            project.compose("build", "init", "service", within=900)
            project.compose("up", "-d", *WITHOUT_SPARK, within=200)
            yield project
        finally:
            project.compose("down", "--volumes", within=120)
            # Each build of changed code leaves the images of the build before without a name, some
            # five gigabytes. Younger ones serve as a cache.
            mine = ("--filter", "label=org.opencontainers.image.title=dovecote")
            said("docker", "image", "prune", "--force", *mine, "--filter", "until=24h", within=300)


def test_everything_gets_healthy_and_a_killed_relay_is_replaced_with_nothing_lost(
    project: Project,
) -> None:
    for service in ("postgres", "kafka", "relay", "standby", "push"):
        until(
            lambda service=service: project.health(service) == "healthy",  # type: ignore[misc]  # bound early
            within=120,
            what=f"{service} healthy",
        )
    shown = ("cat", "/home/dovecote/state/push-token")
    token = said("docker", "exec", project.container("push"), *shown).strip()
    push = Client(int(os.environ["DOVECOTE_PUSH_PORT"]), token)
    assert push("GET", "/subscriptions").body == []
    assert said("docker", "exec", project.container("push"), "dovecote", "push", "list") == ""
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


def test_the_spark_jobs_make_of_it_what_they_should_once_each(project: Project) -> None:
    service = project.container("service")
    assert said("docker", "wait", service, within=120).strip() == "0"
    project.compose("build", "jobs", within=900)
    project.compose("up", "-d", "--no-deps", "jobs", within=60)
    until(lambda: project.health("jobs") == "healthy", within=400, what="jobs healthy")
    check = ("python", "-m", "dovecote.demo.jobs", "--bootstrap", "kafka:9092", "check")

    def agrees() -> bool:
        command = ["docker", "exec", project.container("jobs"), *check]
        done = subprocess.run(command, capture_output=True, timeout=patient(60), check=False)
        return done.returncode == 0

    until(agrees, within=400, what=f"success of {' '.join(check)}")
