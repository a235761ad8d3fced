"""The servers of official images in containers, for tests that hold on every stack."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from dovecote.devstack.kafka.kafka import SETTINGS
from dovecote.devstack.places import free_port

POSTGRES = os.environ.get("DOVECOTE_TEST_POSTGRES", "postgres:17")
KAFKA = os.environ.get("DOVECOTE_TEST_KAFKA", "apache/kafka:4.2.0")
# The image that removes the containers of a killed test run is needed too.
REAPER = [] if testcontainers_config.ryuk_disabled else [testcontainers_config.ryuk_image]

NEEDED = pytest.mark.containers(POSTGRES, KAFKA, *REAPER)
"""The mark of tests that run with `containers`."""

_ANSWER_SECONDS = 60
_START_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Database:
    """A Postgres; `dsn` is for its superuser."""

    dsn: str


@dataclass(frozen=True, slots=True)
class Broker:
    """A Kafka; clients connect to `bootstrap`."""

    bootstrap: str


@dataclass(frozen=True, slots=True)
class Containers:
    """Both servers, with the interface of the embedded stack."""

    postgres: Database
    kafka: Broker


@contextmanager
def containers() -> Iterator[Containers]:
    """Yield a Postgres and a Kafka in containers, and remove them afterwards."""
    port = free_port()
    ready = LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(_START_SECONDS)
    with _kafka(port) as kafka, _postgres() as postgres:
        ready.wait_until_ready(kafka)
        yield Containers(
            Database(postgres.get_connection_url(driver=None)),
            Broker(f"{kafka.get_container_host_ip()}:{port}"),
        )


def _postgres() -> PostgresContainer:
    wanted = ("fsync=off", "full_page_writes=off", "wal_level=logical", "max_connections=200")
    container = PostgresContainer(POSTGRES, password=secrets.token_urlsafe(16)).with_command(
        ["postgres", *(word for setting in wanted for word in ("-c", setting))]
    )
    _publish(container, 5432, free_port())
    return container


def _publish(container: DockerContainer, port: int, outside: int) -> None:
    """Publish a port, only to this machine if the engine runs on it."""
    container.with_bind_ports(port, outside)
    if container.get_docker_client().host() in {"localhost", "127.0.0.1"}:
        # The engine's client accepts an address too, which testcontainers' types do not declare.
        ports: dict[str, Any] = container.ports
        ports[str(port)] = ("127.0.0.1", outside)


def _kafka(port: int) -> DockerContainer:
    # The port is the same on both sides, because the broker too connects to what it advertises.
    container = DockerContainer(KAFKA)
    _publish(container, port, port)
    settings = {
        **SETTINGS,
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://{container.get_docker_client().host()}:{port}",
    }
    for name, value in settings.items():
        container.with_env(f"KAFKA_{name.replace('.', '_').upper()}", value)
    return container.with_env("KAFKA_HEAP_OPTS", "-Xmx512m")


@cache
def lacking(*images: str) -> str | None:
    """Return what must be done before `images` can run here, or None; tests pull nothing."""
    if shutil.which("docker") is None:
        return "there is no docker command: install Docker"
    if not _succeeds("docker", "version"):
        return "no Docker engine answers: start it, or set DOCKER_HOST"
    missing = [image for image in images if not _succeeds("docker", "image", "inspect", image)]
    return f"images are missing: docker pull {' '.join(missing)}" if missing else None


def _succeeds(*command: str) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
