"""Measure what a record costs a consumer and its inbox, over the backlog, keys and known ids."""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from uuid import uuid4

import psycopg

from benchmarks import harness
from benchmarks.dedup_consumer import Load, fill
from benchmarks.scale.points import Curve, Point, sizes
from dedup.consumer import Consumer
from dedup.inbox import schema
from dedup.settings.consumer import ConsumerSettings
from dovecote.devstack import Stack
from dovecote.process.memory import relax
from outbox.event import Event

_CHILD = "from benchmarks.scale.consumers import child; child()"
_RECORDS = 200_000
_LONGEST_SECONDS = 600.0
_COST = "processor time of the consumer"
_TURNS, _TRANSACTIONS = 5, 1_000

_OLD_IDS = b"""
INSERT INTO inbox.handled_0 (slot, consumer, id, round)
SELECT 0, 'shipping', n || '-' || gen_random_uuid() || '@bench', 0
FROM generate_series(%s::bigint, %s::bigint) AS n
"""


def backlog(stack: Stack, most: int) -> Curve:
    """Return the cost over the records that wait when the consumer starts."""
    points = [_point(stack, size, Load(0, 32, size)) for size in sizes(10_000, most)]
    return Curve("consumer-backlog", "records that wait", _COST, tuple(points))


def keys(stack: Stack, most: int) -> Curve:
    """Return the cost over the keys of the records."""
    points = [_point(stack, size, Load(0, 32, _RECORDS, keys=size)) for size in sizes(100, most)]
    return Curve("consumer-keys", "keys", _COST, tuple(points))


def inbox(stack: Stack, most: int) -> Curve:
    """Return the time of an inbox transaction over the ids that the inbox knows."""
    points = []
    with psycopg.connect(harness.empty_database(stack), autocommit=True) as conn:
        schema.install(conn)
        # The disk's own time, which is no matter of ids, would hide the rest.
        conn.execute("SET synchronous_commit = off")
        known = 0
        for size in sizes(10_000, most):
            while known < size:
                some = min(1_000_000, size - known)
                conn.execute(_OLD_IDS, [known, known + some - 1])
                known += some
            conn.execute("VACUUM (ANALYZE) inbox.handled")
            conn.execute("CHECKPOINT")
            points.append(Point(size, round(_transaction(conn), 1)))
    return Curve("inbox-ids", "ids in the inbox", "time of one transaction", tuple(points))


def _transaction(conn: psycopg.Connection) -> float:
    """Return the microseconds of a transaction that takes a new event, the median of turns."""
    turns = []
    for _ in range(_TURNS):
        ids = [f"{uuid4()}@bench" for _ in range(_TRANSACTIONS)]
        began = time.perf_counter()
        for each in ids:
            conn.execute("SELECT inbox.take('shipping', %s, 0)", [each])
        turns.append((time.perf_counter() - began) / _TRANSACTIONS * 1e6)
    return statistics.median(turns)


def _point(stack: Stack, size: int, load: Load) -> Point:
    topic = harness.topic(stack)
    fill(stack.kafka.bootstrap, topic, load)
    wanted = {
        "total": load.records,
        "settings": {
            "topics": [topic],
            "group": topic,
            "value": "raw",
            "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
        },
    }
    command = [sys.executable, "-c", _CHILD, json.dumps(wanted)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    if found["handled"] != load.records:
        sys.exit(f"{found['handled']} records were handled instead of {load.records}")
    return Point(
        size,
        round(found["cpu"] / load.records * 1e6, 2),
        round(found["peak_bytes"] / 1e6, 1),
    )


def child() -> None:
    """Consume, and print the processor time from the first handled record to the last."""
    wanted = json.loads(sys.argv[1])
    counted, total, done = 0, wanted["total"], threading.Event()
    first = last = 0.0
    lock = threading.Lock()

    def handle(_: Event) -> None:
        nonlocal counted, first, last
        with lock:
            counted += 1
            if counted == 1:
                first = time.process_time()
            if counted == total:
                last = time.process_time()
                done.set()

    consumer = Consumer(ConsumerSettings.model_validate(wanted["settings"]), handle)

    def watch() -> None:
        done.wait(_LONGEST_SECONDS)
        consumer.stop()

    threading.Thread(target=watch, daemon=True).start()
    relax()
    consumer.run()
    peak = harness.peak_bytes(os.getpid())
    print(json.dumps({"handled": counted, "cpu": last - first, "peak_bytes": peak}))
