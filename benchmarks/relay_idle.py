"""The cost of an idle relay: `make bench-relay_idle`."""

import argparse
import time

import psycopg

from benchmarks import draining, harness
from dovecote.devstack import Stack
from outbox import Event, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captures", nargs="+", default=["table", "wal"])
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    with harness.servers() as stack:
        for capture in args.captures:
            idle(stack, capture, args.seconds)


def idle(stack: Stack, capture: str, seconds: float) -> None:
    """Let a relay publish one event, and then nothing for a while."""
    dsn, topic = harness.database(stack, capture), harness.topic(stack)
    with psycopg.connect(dsn) as conn:
        write(conn, Event(topic=topic, type="Benched", source="/bench", key="key", value=b"x"))
    with harness.relay(stack, dsn, name=topic, capture=capture) as pid:
        draining.until_published(stack, topic, 1)
        # By then the effects of the start are over: caches and pauses have settled.
        time.sleep(2)
        before, began = harness.cpu_seconds(pid), time.monotonic()
        time.sleep(seconds)
        share = (harness.cpu_seconds(pid) - before) / (time.monotonic() - began)
        memory = harness.peak_bytes(pid)
    harness.emit(
        "relay_idle",
        capture=capture,
        seconds=seconds,
        relay_cpu_share=round(share, 4),
        peak_mb=round(memory / 1e6),
    )


if __name__ == "__main__":
    main()
