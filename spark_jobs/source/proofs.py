"""Ask Kafka now and then whether it answers, so that a query between batches knows."""

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dovecote.process.proof import Proof
from outbox.kafka import kafka_logger
from outbox.tokens.source import lasting
from spark_jobs.sink import kafka_options

_log = kafka_logger("dovecote.spark.kafka")

_SECONDS = 5.0
# Brokers make no topic of this name when they are asked for it.
_ALWAYS_THERE = "__consumer_offsets"


def kafka_proof(kafka: Mapping[str, str]) -> Proof:
    """Return a proof that a broker of `kafka` answers; it asks nothing yet."""
    made: list[AdminClient] = []

    def ask() -> str:
        if not made:
            made.append(lasting(AdminClient, kafka_options.client(kafka), _log))
        try:
            made[0].list_topics(_ALWAYS_THERE, _SECONDS)
        except KafkaException as error:
            return f"Kafka: {error.args[0].str()}"
        return ""

    return Proof(ask, close=made.clear)
