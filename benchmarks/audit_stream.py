"""
How fast `dovecote audit` compares rows with records, on one core: `make bench-audit_stream`.

A relay has published the events before the clock starts. The auditor is a process of its own,
bound to one core; its processor time and its largest memory are those that the system counted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import draining, harness
from benchmarks.relay_drain import Backlog, fill
from dovecote.devstack import Stack

_DSN = "DOVECOTE_BENCH_AUDIT_DSN"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of each value")
    parser.add_argument("--keys", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    backlog = Backlog(args.events, args.size, args.keys)
    with harness.servers() as stack:
        dsn, name = harness.database(stack), harness.topic(stack)
        fill(dsn, backlog, name)
        with harness.relay(stack, dsn, name=name, retention="5h") as pid:
            draining.watch(stack, name, pid, total=backlog.total, started=time.monotonic())
        for _ in range(args.rounds):
            audit(stack, backlog, dsn, name)


def audit(stack: Stack, backlog: Backlog, dsn: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "watch.toml"
        file.write_text(
            f'[kafka]\n"bootstrap.servers" = {json.dumps(stack.kafka.bootstrap)}\n'
            f'[sources.outbox.bench]\ndsn = {{ env = "{_DSN}" }}\nretention = "5h"\n'
            f"name = {json.dumps(name)}\n[audit]\n"
            f'late = "1h"\nstate = {json.dumps(str(Path(folder) / "audit.sqlite3"))}\n',
            encoding="utf-8",
        )
        command = [str(Path(sys.executable).with_name("dovecote")), "audit", "--once", "--json"]
        began = time.monotonic()
        with subprocess.Popen(
            [*command, "--config", str(file)],
            env={**os.environ, _DSN: dsn},
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, {0}),  # noqa: PLW1509  # before any thread
        ) as process:
            assert process.stdout is not None  # noqa: S101  # a pipe
            told = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        state_bytes = sum(each.stat().st_size for each in Path(folder).glob("audit.sqlite3*"))
    statement = json.loads(told)
    counts = statement["topics"].get(name, {})
    cpu = used.ru_utime + used.ru_stime
    harness.emit(
        "audit_stream",
        events=backlog.total,
        matched=counts.get("matched", 0),
        findings=len(statement["findings"]),
        troubles=statement["troubles"],
        value_bytes=backlog.size,
        keys=backlog.keys,
        seconds=round(seconds, 2),
        events_per_s=round(backlog.total / seconds),
        cpu_seconds=round(cpu, 2),
        events_per_cpu_second=round(backlog.total / cpu),
        rss_mb=round(used.ru_maxrss / 1024),
        state_mb=round(state_bytes / 1e6),
    )


if __name__ == "__main__":
    main()
