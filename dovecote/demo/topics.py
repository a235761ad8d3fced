"""The topics of the demo."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.demo import configs

_SECONDS = 30.0

TOPICS = (
    configs.FLIGHTS,
    configs.DEPARTURES,
    configs.ARRIVALS,
    configs.RETRY,
    configs.DEAD_LETTER,
    configs.TRIPS,
    configs.DAYS,
    *configs.ASIDE,
)
# Brokers delete records by their timestamps, and those of trips and days are from 2013.
_KEPT = {"retention.ms": "-1"}


def make(bootstrap: str) -> None:
    """
    Create the topics that do not exist.

    Raises:
        KafkaException: the broker does not answer, or refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [NewTopic(topic, configs.PARTITIONS, 1, config=_KEPT) for topic in TOPICS]
    for made in admin.create_topics(wanted, request_timeout=_SECONDS).values():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
