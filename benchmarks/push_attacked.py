"""
The latency of a subscription while others are attacked: `make bench-push_attacked`.

One `dovecote push serve` delivers a topic at a steady pace, as in `push_latency`. Calm, it has two
other subscriptions, whose endpoints answer. Attacked, one of them has an endpoint that never
answers, and the other gets records with impossible histories and fails. At the same time there are
2,000 idle clients of the API, half of them with the beginning of a request, and ten requests a
second for a pattern that would take hours to match. Push ends idle connections; each of these
clients connects again every ten seconds.

Both are measured in turn, in one run, each time with a process and topics of their own. The ratio
is the median of the ratios within a round.
"""

import argparse
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
from cryptography.fernet import Fernet

from benchmarks import harness, push_latency, pushed
from benchmarks.warming import KAFKA_JAVA, warm
from dovecote.devstack import Stack
from dovecote.push.api.access import hashed
from dovecote.push.store import schema

PER_S = 1_000
SECONDS = 7
ROUNDS = 5
_STARTS_SECONDS = 30


class Push:
    """A `dovecote push serve` with an API."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token

    def subscribe(self, wanted: Mapping[str, Any]) -> None:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/subscriptions",
            json.dumps(wanted).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        urllib.request.urlopen(asked, timeout=30).close()  # noqa: S310  # ours


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    found: defaultdict[bool, list[push_latency.Percentiles]] = defaultdict(list)
    missing = 0
    with harness.servers(KAFKA_JAVA) as stack, pushed.target("first") as target:
        bootstrap = stack.kafka.bootstrap
        warm(
            stack.kafka,
            lambda: push_latency.floor(
                bootstrap, push_latency.WARMING_PER_S, push_latency.WARMING_SECONDS
            ),
        )
        measure(stack, target, attacked=False)  # the code that only push calls is compiled
        for _ in range(args.rounds):
            for attacked in (False, True):
                told = measure(stack, target, attacked=attacked)
                missing += len(told.intended) - told.told["fast"]
                found[attacked].append(push_latency.percentiles(told, PER_S))
    for attacked, rounds in found.items():
        harness.emit(
            "push_attacked",
            attacked=attacked,
            per_s=PER_S,
            **push_latency.medians(rounds),
            added_p99_ratio=push_latency.ratio(rounds, found[False], "added_p99_ms"),
            visible_p99_ratio=push_latency.ratio(rounds, found[False], "visible_p99_ms"),
            rounds=len(rounds),
            undelivered=missing,
        )


def measure(stack: Stack, target: pushed.Target, *, attacked: bool) -> push_latency.Measured:
    """Measure the deliveries of one topic, with the others calm or attacked."""
    bootstrap = stack.kafka.bootstrap
    target.begin_anew()
    topic, *others = [push_latency.timed_topic(bootstrap) for _ in range(3)]
    kinds = ("black-hole", "failing") if attacked else ("also-fast", "also-fast")
    with serving(stack) as push:
        push.subscribe(pushed.subscription("measured", topic, target.url("fast"), 100))
        for other, kind in zip(others, kinds, strict=True):
            push.subscribe(pushed.subscription(other, other, target.url(kind), 100))
        attack = attackers(push, bootstrap, others[1]) if attacked else nullcontext()
        with attack:
            push_latency.begin(bootstrap, topic)
            pushed.until_came(target, 1, within=30)
            target.begin_anew()
            intended = push_latency.produce(bootstrap, topic, others, PER_S, SECONDS)
            told = pushed.until_came(target, len(intended), within=10)
            arrived = target.told(0, len(intended))["times"]
    visible = push_latency.appended(bootstrap, topic, len(intended))
    return push_latency.Measured(intended, visible, arrived, told, 0.0)


@contextmanager
def attackers(push: Push, bootstrap: str, poisoned: str) -> Iterator[None]:
    given = str(push.port), push.token, bootstrap, poisoned
    with pushed.child("push_attackers", *given) as process:
        pushed.line(process)
        yield


@contextmanager
def serving(stack: Stack) -> Iterator[Push]:
    """Run `dovecote push serve` on a database of its own."""
    dsn, token = harness.empty_database(stack), secrets.token_urlsafe()
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
    with tempfile.TemporaryDirectory() as folder:
        config, log = Path(folder) / "push.toml", Path(folder) / "push.log"
        config.write_text(
            'dsn = { env = "DSN" }\nallow_addresses = ["127.0.0.0/8"]\npoll = "200ms"\n'
            f'[brokers.default]\n"bootstrap.servers" = "{stack.kafka.bootstrap}"\n'
            '[http]\nport = 0\n[secrets]\nkeys = { env = "KEYS" }\n'
            f'[api.tokens]\nbench = "{hashed(token)}"\n',
            encoding="utf-8",
        )
        environ = {**os.environ, "DSN": dsn, "KEYS": Fernet.generate_key().decode()}
        command = [
            str(Path(sys.executable).with_name("dovecote")),
            "push",
            "serve",
            "-c",
            str(config),
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=environ, stdout=out, stderr=out)
        try:
            yield Push(_port(process, log), token)
        finally:
            process.terminate()
            process.wait(40)


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + _STARTS_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"serving .* on \S+:(\d+)", log.read_text(encoding="utf-8")):
            return int(found[1])
        time.sleep(0.05)
    sys.exit(f"push does not start:\n{log.read_text(encoding='utf-8')}")


if __name__ == "__main__":
    main()
