"""Write what clients cannot read: batches that unpack to too much, and damaged ones."""

import struct
from pathlib import Path

from confluent_kafka import Producer

from tests.support.waiting import patient

LIMITS = {
    "receive.message.max.bytes": "1000000",
    "fetch.max.bytes": "900000",
    "message.max.bytes": "900000",
}
"""With these a client takes no batch that unpacks to more than 1 MB."""

_HEAD = struct.Struct(">qi")
_IN_FIRST_RECORD = 80


def produce_bomb(kafka: str, topic: str, records: int = 1, partition: int = 0) -> None:
    """Produce one batch that is small on the wire and large when it is unpacked."""
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "compression.type": "zstd",
            "linger.ms": 500,
            "message.max.bytes": 20_000_000,
            "batch.size": 20_000_000,
        }
    )
    for _ in range(records):
        producer.produce(topic, b"\0" * 2_000_000, b"bomb", partition=partition)
    assert producer.flush(patient(30)) == 0


def damage(logs: Path, topic: str, first: int, partition: int = 0) -> int:
    """
    Change a byte of the batch with this first offset, as a bad disk does; return its length.

    A broker sends what the file holds, and checks nothing.
    """
    (file,) = (logs / f"{topic}-{partition}").glob("*.log")
    data, at = file.read_bytes(), 0
    while at < len(data):
        offset, length = _HEAD.unpack_from(data, at)
        if offset == first:
            with file.open("r+b") as opened:
                opened.seek(at + _IN_FIRST_RECORD)
                opened.write(bytes([data[at + _IN_FIRST_RECORD] ^ 0xFF]))
            return int(length)
        at += _HEAD.size + length
    msg = f"no batch of {topic} begins at {first}"
    raise AssertionError(msg)
