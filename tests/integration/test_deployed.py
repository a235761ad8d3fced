"""The chart's pods and the systemd unit, started as processes: what they say is what runs."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from dovecote.devstack.places import free_port
from dovecote.process.http.probe import ask
from outbox import Event, schema, write
from tests.support.charts import documented, environment, one, pod, rendered, settings
from tests.support.documents import ROOT
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

DOVECOTE = str(Path(sys.executable).with_name("dovecote"))
RELAY = "shop-dovecote-relay"


@contextmanager
def started(
    command: Sequence[str], environ: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the end of the block."""
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env={**inherited, **environ}, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[bytes], within: float) -> int:
    """Return the status of a process that is asked to end, and that may take so many seconds."""
    process.send_signal(signal.SIGTERM)
    return process.wait(patient(within))


def relay_toml(stack: Servers, database: str) -> str:
    return (
        f'name = "{uuid4().hex}"\ndsn = {{ env = "THE_DSN" }}\n[kafka]\n'
        f'"bootstrap.servers" = "{stack.kafka.bootstrap}"\n# {len(database)}\n'
    )


def publishes(stack: Servers, database: str, topic: str, port: int, log: Path) -> None:
    """Check that a relay is ready, by the probes, and publishes what is written."""
    for path in ("/healthz", "/readyz"):
        until(lambda: ask(path, [port]) is None, within=60, what=f"{path}: {log.read_text()}")  # noqa: B023  # called at once
    with psycopg.connect(database) as conn:
        write(conn, Event(topic=topic, type="T", value=b"1"))
    until(lambda: len(consume(stack.kafka.bootstrap, topic)) == 1, within=60, what="the event")


def ported(container: dict[str, Any], environ: dict[str, str], port: int) -> dict[str, str]:
    """Return the variables with a free port in place of the pod's own."""
    (own,) = [each["containerPort"] for each in container["ports"]]
    assert environ["DOVECOTE_RELAY_HTTP__PORT"] == str(own)
    return {**environ, "DOVECOTE_RELAY_HTTP__PORT": str(port)}


def test_the_chart_installs_the_schema_and_its_relay_publishes_and_ends_in_its_grace_period(
    stack: Servers, database: str, topic: MakeTopic, tmp_path: Path
) -> None:
    values = documented()
    values["init"]["outbox"] = {"enabled": True, "args": ["--writer-role", "pg_monitor"]}
    values["relay"]["config"] = relay_toml(stack, database)
    values["relay"]["env"] = [
        {"name": "THE_DSN", "valueFrom": {"secretKeyRef": {"name": "shop-relay", "key": "dsn"}}}
    ]
    objects = rendered(values)
    secrets = {("shop-owner", "dsn"): database, ("shop-relay", "dsn"): database}
    (init,) = pod(one(objects, "Job", "shop-dovecote-init-outbox"))["containers"]
    with started([DOVECOTE, *init["args"]], environment(init, secrets), tmp_path / "init") as job:
        assert job.wait(patient(60)) == 0, (tmp_path / "init").read_text()
    with psycopg.connect(database) as conn:
        schema.require(conn)
    spec = pod(one(objects, "Deployment", RELAY))
    (relay,) = spec["containers"]
    assert relay["command"] == ["dovecote"]
    mounted = {each["mountPath"] for each in relay["volumeMounts"]}
    assert mounted == {"/etc/dovecote", "/tmp", "/run/secrets/dovecote/shop-relay"}  # noqa: S108  # a pod's
    file = settings(objects, RELAY, tmp_path)
    words = [word.replace("/etc/dovecote/settings.toml", str(file)) for word in relay["args"]]
    port, log = free_port(), tmp_path / "relay.log"
    environ = ported(relay, environment(relay, secrets), port)
    with started([DOVECOTE, *words], environ, log) as process:
        publishes(stack, database, topic(), port, log)
        assert ended(process, spec["terminationGracePeriodSeconds"]) == 0


def test_the_unit_of_the_relay_publishes_and_ends_before_systemd_loses_patience(
    stack: Servers, database: str, topic: MakeTopic, tmp_path: Path
) -> None:
    unit = (ROOT / "compose/systemd/dovecote-relay.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    port, log = free_port(), tmp_path / "relay.log"
    file = tmp_path / "relay.toml"
    http = f'[http]\nhost = "127.0.0.1"\nport = {port}\n'
    file.write_text(relay_toml(stack, database) + http, encoding="utf-8")
    program, *words = shlex.split(command)
    assert program == "/opt/dovecote/bin/dovecote"
    words = [word.replace("/etc/dovecote/relay.toml", str(file)) for word in words]
    with psycopg.connect(database) as conn:
        schema.install(conn)
    with started([DOVECOTE, *words], {"THE_DSN": database}, log) as process:
        publishes(stack, database, topic(), port, log)
        assert ended(process, int(stop)) == 0
