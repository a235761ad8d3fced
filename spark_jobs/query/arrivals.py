"""Ask Kafka whether anything has come that Spark has not read."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]  # no types

from spark_jobs.sink import kafka_options
from spark_jobs.sink.group import Ends

_OffsetSpecs: Any = _OffsetSpec
_ASK_SECONDS = 2.0


class Arrivals:
    """Asks for the ends of the partitions that a query reads."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._admin: AdminClient | None = None

    def behind(self, ends: Ends) -> bool:
        """Return whether there may be records after `ends`; also if Kafka does not answer."""
        if self._admin is None:
            self._admin = AdminClient({**kafka_options.client(self._kafka), "log_level": 0})
        read = {
            TopicPartition(topic, partition): offset
            for topic, partitions in ends.items()
            for partition, offset in partitions.items()
        }
        latest = dict.fromkeys(read, _OffsetSpecs.latest())
        try:
            asked = self._admin.list_offsets(
                latest, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ASK_SECONDS
            )
            return any(each.result().offset != read[place] for place, each in asked.items())
        except KafkaException:
            # Spark asks the same, and will find and report the error.
            return True
