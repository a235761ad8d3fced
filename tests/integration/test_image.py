"""The image of compose/Dockerfile, run as confined as the chart runs it."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from uuid import uuid4

import psycopg
import pytest

from dovecote.devstack.places import free_port
from outbox import Event, write
from tests.support.charts import documented, environment, one, pod, rendered, settings
from tests.support.documents import ROOT
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

pytestmark = [pytest.mark.containers("python:3.11-slim"), pytest.mark.timeout(1_800)]

CONFINED = (
    *("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),  # noqa: S108  # a container's
    *("--security-opt", "no-new-privileges", "--network", "host"),
)


def said(*command: str, within: float = 60.0, status: int = 0) -> str:
    """Return the output of a command; fail with all of it if it ends with another status."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(within), check=False
    )
    assert done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + (done.stderr if status else "")


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The name of the image, which is built here."""
    name = f"dovecote-test-{uuid4().hex[:8]}"
    network = os.environ.get("DOVECOTE_BUILD_NETWORK", "host")
    said(
        *("env", "DOCKER_BUILDKIT=0", "docker", "build", "--network", network, "--quiet"),
        *("--file", str(ROOT / "compose/Dockerfile"), "--target", "dovecote", "--tag", name),
        str(ROOT),
        within=900,
    )
    yield name
    said("docker", "rmi", "--no-prune", name)


class Container:
    """A container in the background, which is removed at the end of the block."""

    def __init__(self, image: str, *words: str, options: tuple[str, ...] = ()) -> None:
        run = ("docker", "run", "--detach", *CONFINED, *options, image, *words)
        self.id = said(*run).strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        said("docker", "rm", "--force", self.id)

    def inspect(self, what: str) -> str:
        return said("docker", "inspect", "--format", what, self.id).strip()

    def log(self) -> str:
        done = subprocess.run(
            ["docker", "logs", self.id],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout + done.stderr

    def stopped(self, within: int) -> int:
        """Return the status with which it ends when asked to; after `within` s it is killed."""
        said("docker", "stop", "-t", str(within), self.id, within=within + 30)
        return int(self.inspect("{{.State.ExitCode}}"))


def shell(image: str, script: str) -> str:
    return said(
        *("docker", "run", "--rm", *CONFINED, "--entrypoint", "sh", image, "-c", script),
    ).strip()


def test_it_runs_as_nobody_and_has_nothing_that_builds_or_installs(image: str) -> None:
    assert shell(image, "id -u; id -g; pwd").split() == ["10001", "10001", "/home/dovecote"]
    tools = ("cc", "gcc", "g++", "make", "ld", "cargo", "pip", "git")
    assert shell(image, f"for each in {' '.join(tools)}; do command -v $each; done; true") == ""
    assert shell(image, "python -c 'import pip' 2>&1 | tail -n 1").startswith("ModuleNotFound")
    assert shell(image, "touch /opt/dovecote/x /home/dovecote/x 2>/dev/null; echo $?") == "1"


def test_it_lists_its_packages(image: str) -> None:
    listed = json.loads(shell(image, "cat /opt/dovecote/sbom.cdx.json"))
    assert listed["bomFormat"] == "CycloneDX"
    named = {each["name"]: each["version"] for each in listed["components"]}
    code = (
        "import json; from importlib.metadata import distributions as d;"
        "print(json.dumps({each.name: each.version for each in d()}))"
    )
    installed = json.loads(shell(image, f'python -c "{code}"'))
    own = installed.pop("dovecote")
    assert installed == named
    assert shell(image, "dovecote --version") == f"dovecote {own}"
    for command in ("relay run", "consume run", "push serve"):
        assert shell(image, f"dovecote {command} --help").startswith("Usage: ")


def test_as_process_1_it_ends_when_asked_also_where_a_command_is_waiting(image: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        options = ("--env", f"DOVECOTE_DSN=host=127.0.0.1 port={port} connect_timeout=600")
        with Container(image, "init", "outbox", options=options) as waiting:
            silent.settimeout(patient(60))
            client, _ = silent.accept()  # the command waits for an answer
            began = time.monotonic()
            status = waiting.stopped(60)
            client.close()
    assert time.monotonic() - began < patient(30)
    assert status == 128 + signal.SIGTERM


def test_the_chart_s_pods_run_in_it_with_their_probes_and_end_in_their_grace_period(
    image: str, stack: Servers, database: str, topic: MakeTopic, tmp_path: Path
) -> None:
    values = documented()
    values["init"]["outbox"] = {"enabled": True, "args": []}
    values["relay"]["config"] = (
        f'name = "{uuid4().hex}"\ndsn = {{ env = "THE_DSN" }}\n'
        f'[kafka]\n"bootstrap.servers" = "{stack.kafka.bootstrap}"\n'
    )
    objects = rendered(values)
    (init,) = pod(one(objects, "Job", "shop-dovecote-init-outbox"))["containers"]
    dsn = environment(init, {("shop-owner", "dsn"): database})
    ran = ("docker", "run", "--rm", *CONFINED, "--env", f"DOVECOTE_DSN={dsn['DOVECOTE_DSN']}")
    assert "the outbox is up to date" in said(*ran, image, *init["args"])
    spec = pod(one(objects, "Deployment", "shop-dovecote-relay"))
    (relay,) = spec["containers"]
    file = settings(objects, "shop-dovecote-relay", tmp_path)
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    port = free_port()
    variables = {
        **environment(relay),
        "THE_DSN": database,
        "DOVECOTE_RELAY_HTTP__PORT": str(port),
        "DOVECOTE_HEALTH_PORT": str(port),
    }
    given = [word for each in variables.items() for word in ("--env", "=".join(each))]
    user = str(spec["securityContext"]["runAsUser"])
    mount = f"{file}:/etc/dovecote/settings.toml:ro"
    options = (*given, "--user", user, "--volume", mount, "--entrypoint", *relay["command"])
    options += ("--health-interval", "1s", "--health-start-period", "0s")
    with Container(image, *relay["args"], options=options) as running:
        until(
            lambda: running.inspect("{{.State.Health.Status}}") == "healthy",
            within=60,
            what="a healthy container",
        )
        probe = ("docker", "exec", running.id, "python", "-m", "dovecote.process.http.probe")
        until(
            lambda: subprocess.run([*probe, "/readyz"], check=False).returncode == 0,
            within=60,
            what="a ready relay",
        )
        name = topic()
        with psycopg.connect(database) as conn:
            write(conn, Event(topic=name, type="T", value=b"1"))
        until(lambda: len(consume(stack.kafka.bootstrap, name)) == 1, within=60, what="the event")
        assert running.stopped(spec["terminationGracePeriodSeconds"]) == 0, running.log()
