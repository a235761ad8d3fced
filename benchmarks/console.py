"""
The cost of a console that watches an idle system, for itself and for the watched servers.

It starts Postgres and Kafka, makes topics that one consumer is said to read, and runs a console in
this process. It prints a line of JSON: the share of a core, the resident memory in MB, the
requests to Kafka and the queries of Postgres a minute, and the size of `/api/flow`.

    python -m benchmarks.console --topics 100 --seconds 60
"""

import argparse
import json
import os
import resource
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.console.process import running
from dovecote.console.settings import ConsoleSettings
from dovecote.devstack import Stack
from dovecote.observe.sources import read
from outbox import schema

_FILE = """
[kafka]
"bootstrap.servers" = "{bootstrap}"
[console]
state = "{folder}/state"
[console.http]
port = 0
[sources.outbox.shop]
dsn = {{ env = "DSN" }}
[sources.consumer.shipping]
group = "shipping"
topics = {topics}
"""
_BEGIN_SECONDS = 10.0


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    topics = [f"orders-{number:03d}" for number in range(given.topics)]
    with Stack(fsync=False) as stack, TemporaryDirectory() as folder:
        admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
        made = admin.create_topics([NewTopic(each, num_partitions=1) for each in topics])
        for each in made.values():
            each.result(60)
        with psycopg.connect(stack.postgres.dsn) as conn:
            schema.install(conn)
        file = Path(folder) / "watch.toml"
        text = _FILE.format(
            bootstrap=stack.kafka.bootstrap, folder=folder, topics=json.dumps(topics)
        )
        file.write_text(text, encoding="utf-8")
        settings = read(ConsoleSettings, file, {"DSN": stack.postgres.dsn})
        with running(settings) as console:
            # The first looks make connections, and load what they need.
            pause = threading.Event()
            pause.wait(_BEGIN_SECONDS)
            kafka, postgres = console.watch.kafka["kafka"], console.watch.desks["shop"]
            asked, queries = kafka.requests, postgres.queries
            began, worked = time.monotonic(), time.process_time()
            pause.wait(given.seconds)
            passed, used = time.monotonic() - began, time.process_time() - worked
            told = {
                "topics": given.topics,
                "core_percent": round(100 * used / passed, 2),
                "most_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "kafka_requests_a_minute": round((kafka.requests - asked) * 60 / passed, 1),
                "postgres_queries_a_minute": round((postgres.queries - queries) * 60 / passed, 1),
                "flow_bytes": len(console.showing.flow()),
                "load_of_machine": round(os.getloadavg()[0], 1),
            }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
