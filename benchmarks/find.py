"""
How long an event is searched for: its id among many records of a topic.

It fills a topic with small records that come at a steady rate, and searches for ids at several
places in it, and for one that is nowhere. It prints a line of JSON for each search.

    python -m benchmarks.find --records 10000000
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack import Stack
from dovecote.observe.find import Query, find
from dovecote.observe.sources import WatchSettings, read
from outbox.envelope import ID
from outbox.kafka import PARTITIONER

_TOPIC = "orders"
_KEYS = 100_000


def id_of(number: int, at: int) -> str:
    """Return the UUIDv7 of a record: its time in milliseconds, and its number."""
    return str(UUID(int=at << 80 | 7 << 76 | 2 << 62 | number))


def fill(bootstrap: str, records: int, first: int, last: int, partitions: int) -> float:
    """Write the records, with times between two, and return the seconds that it took."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1"}
    admin.create_topics([NewTopic(_TOPIC, num_partitions=partitions, config=config)])[
        _TOPIC
    ].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            **PARTITIONER,
            "linger.ms": 50,
            "batch.num.messages": 50_000,
            "batch.size": 900_000,
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
            "acks": "1",
        }
    )
    began = time.monotonic()
    for number in range(records):
        at = time_of(number, records, first, last)
        headers: list[tuple[str, str | bytes | None]] = [(ID, id_of(number, at).encode())]
        while True:
            try:
                producer.produce(
                    _TOPIC, b"{}", b"k%d" % (number % _KEYS), headers=headers, timestamp=at
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("some records were not written within two minutes")
    return time.monotonic() - began


def time_of(number: int, records: int, first: int, last: int) -> int:
    return first + (last - first) * number // records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=200, help="that the records span")
    options = parser.parse_args()
    with Stack(fsync=False) as stack, TemporaryDirectory() as folder:
        now = datetime.now(UTC)
        last = int(now.timestamp() * 1000)
        first = int((now - timedelta(minutes=options.minutes)).timestamp() * 1000)
        bootstrap = stack.kafka.bootstrap
        seconds = fill(bootstrap, options.records, first, last, options.partitions)
        told = {"records": options.records, "filled_seconds": round(seconds, 1)}
        print(json.dumps(told), flush=True)
        file = Path(folder, "watch.toml")
        file.write_text(
            f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
            f'[sources.consumer.shipping]\ngroup = "shipping"\ntopics = ["{_TOPIC}"]\n',
            encoding="utf-8",
        )
        watch = read(WatchSettings, file, environ=os.environ)
        for place in (0.001, 0.25, 0.5, 0.75, 0.999):
            number = int(options.records * place)
            id_ = id_of(number, time_of(number, options.records, first, last))
            searched(watch, f"at {place:.1%}", Query(id=id_))
        middle = id_of(options.records + 1, (first + last) // 2)
        searched(watch, "nowhere", Query(id=middle))
        at = datetime.fromtimestamp((first + last) / 2000, UTC)
        key = Query(key=b"k7", since=at, until=at + timedelta(minutes=10))
        searched(watch, "a key in ten minutes", key)


def searched(watch: WatchSettings, what: str, query: Query) -> None:
    began = time.monotonic()
    life = find(watch, query)
    told = {
        "search": what,
        "seconds": round(time.monotonic() - began, 2),
        "found": len(life.events),
        "failures": [each.error for each in life.failures],
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
