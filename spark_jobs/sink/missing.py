"""Ask Kafka which topics are missing, where only a record names the topic that it goes to."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_jobs.errors import KafkaUnavailable
from spark_jobs.sink import kafka_options

_SECONDS = 10.0
# By brokers; an executor writes batch after batch to the same topics.
_seen: dict[str, set[str]] = {}


def missing(kafka: Mapping[str, str], topics: AbstractSet[str]) -> set[str]:
    """
    Return which of `topics` do not exist; a topic that this process has seen is not asked about.

    Raises:
        KafkaUnavailable: no broker answers.
    """
    bootstrap = kafka["bootstrap.servers"]
    seen = _seen.setdefault(bootstrap, set())
    if not (unknown := topics - seen):
        return set()
    admin = kafka_options.made(AdminClient, lambda: kafka_options.quiet(kafka))
    try:
        there = admin.list_topics(timeout=_SECONDS).topics
    except KafkaException as error:
        msg = f"{bootstrap}: {error.args[0].str()}"
        raise KafkaUnavailable(msg) from error
    seen |= unknown & there.keys()
    return {*unknown} - seen
