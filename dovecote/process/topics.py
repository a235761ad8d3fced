"""Ask Kafka which topics exist, before anything else is done with them."""

from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from outbox.errors import DovecoteError
from outbox.kafka import kafka_logger
from outbox.secrets import fresh_all

_log = kafka_logger("dovecote.consumer.kafka")


def topics(kafka: Mapping[str, str], *, timeout: float = 10.0) -> Collection[str]:
    """
    Return the topics that exist and that we may see.

    Raises:
        DovecoteError: Kafka does not answer; the message names the brokers asked.
    """
    admin = AdminClient(fresh_all(kafka), logger=_log)
    try:
        return admin.list_topics(timeout=timeout).topics.keys()
    except KafkaException as error:
        msg = (
            f"Kafka does not answer at {kafka.get('bootstrap.servers', 'no address')} "
            f"({error.args[0].str()}); is it there, and is `bootstrap.servers` right?"
        )
        raise DovecoteError(msg) from error
