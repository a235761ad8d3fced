"""Ask brokers up to where partitions can be read: open transactions hold back what follows."""

from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]  # no types

from dedup.retries.aside import Partition
from outbox.kafka import kafka_logger
from outbox.tokens.source import client_of, for_client

OffsetSpec: Any = _OffsetSpec

_log = kafka_logger("dovecote.consumer.kafka")
_SECONDS = 10.0


def stable_ends(
    kafka: Mapping[str, str], partitions: Collection[Partition]
) -> dict[Partition, int]:
    """
    Return the last stable offset of each partition whose broker tells it.

    A `read_committed` consumer gets nothing from there on.
    """
    if not partitions:
        return {}
    admin = client_of(AdminClient, for_client(kafka), _log)
    asked = admin.list_offsets(
        {TopicPartition(*place): OffsetSpec.latest() for place in partitions},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=_SECONDS,
    )
    found: dict[Partition, int] = {}
    for place, answer in asked.items():
        try:
            found[place.topic, place.partition] = answer.result(_SECONDS).offset
        except (KafkaException, TimeoutError, CancelledError) as error:
            _log.debug("the stable end of %s is not known: %s", place, error)
    return found
