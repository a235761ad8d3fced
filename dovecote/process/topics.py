"""Ask Kafka which topics exist, and how large the records are that they take."""

from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own export, but not marked as one
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from outbox.errors import DovecoteError, NoClient
from outbox.kafka import kafka_logger
from outbox.tokens.source import client_of, for_client

_log = kafka_logger("dovecote.consumer.kafka")
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001  # librdkafka's name
_PROTOCOLS = "group.coordinator.rebalance.protocols"
_MAY_WRITE = {AclOperation.WRITE, AclOperation.ALL}


# A first question is short, because a port that refuses at once is known soon.
_FIRST_SECONDS = 3.0


class KafkaAway(DovecoteError):
    """Kafka does not answer; the message names the brokers asked."""


def topics(kafka: Mapping[str, str], *, timeout: float = 10.0) -> Collection[str]:
    """
    Return the topics that exist and that we may see.

    Brokers that are slow have `timeout` to answer. Brokers that refuse each connection have 3 s.

    Raises:
        KafkaAway: Kafka does not answer.
    """
    refused: list[KafkaError] = []
    admin = client_of(AdminClient, {**for_client(kafka), "error_cb": refused.append}, _log)
    first = min(timeout, _FIRST_SECONDS)
    try:
        try:
            return admin.list_topics(timeout=first).topics.keys()
        except KafkaException:
            admin.poll(0)
            if first == timeout or any(each.code() == _ALL_DOWN for each in refused):
                raise
            return admin.list_topics(timeout=timeout - first).topics.keys()
    except KafkaException as error:
        msg = (
            f"Kafka does not answer at {kafka.get('bootstrap.servers', 'no address')} "
            f"({error.args[0].str()}); is it there, and is `bootstrap.servers` right?"
        )
        raise KafkaAway(msg) from error


def most_bytes(
    kafka: Mapping[str, str], names: Collection[str], *, timeout: float = 10.0
) -> dict[str, int]:
    """
    Return the `max.message.bytes` of topics; without those that Kafka does not tell us.

    A user needs the right `DescribeConfigs` on a topic for that.
    """
    wanted = [ConfigResource(ResourceType.TOPIC, name) for name in dict.fromkeys(names)]
    if not wanted or (admin := _client(kafka)) is None:
        return {}
    found: dict[str, int] = {}
    for resource, answer in admin.describe_configs(wanted, request_timeout=timeout).items():
        try:
            found[resource.name] = int(answer.result(timeout + 1)["max.message.bytes"].value)
        except (KafkaException, TimeoutError) as error:
            _log.debug("the limit of topic %s is not known: %s", resource.name, error)
    return found


def group_protocols(kafka: Mapping[str, str], *, timeout: float = 5.0) -> Collection[str]:
    """
    Return the protocols of groups that the brokers take; empty: nothing is known.

    Before Kafka 4.0 they take `classic` alone, and answer a member of another one with nothing at
    all. A user needs the right `DescribeConfigs` on the cluster to learn this.
    """
    if (admin := _client(kafka)) is None:
        return ()
    try:
        broker = next(iter(admin.list_topics(timeout=timeout).brokers))
        wanted = [ConfigResource(ResourceType.BROKER, str(broker))]
        (answer,) = admin.describe_configs(wanted, request_timeout=timeout).values()
        found = answer.result(timeout + 1).get(_PROTOCOLS)
    except (KafkaException, StopIteration, TimeoutError) as error:
        _log.debug("the protocols of groups are not known: %s", error)
        return ()
    return () if found is None else [each.strip() for each in str(found.value).split(",")]


def without_write(
    kafka: Mapping[str, str], names: Collection[str], *, timeout: float = 10.0
) -> list[str]:
    """
    Return which topics we may not write to; all of them, if Kafka does not say which.

    A refused transaction does not say which of its topics was refused.
    """
    wanted = sorted(set(names))
    if not wanted or (admin := _client(kafka)) is None:
        return wanted
    answers = admin.describe_topics(
        TopicCollection(wanted), include_authorized_operations=True, request_timeout=timeout
    )
    found: list[str] = []
    for name in wanted:
        try:
            may = answers[name].result(timeout + 1).authorized_operations
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found.append(name)
        except TimeoutError as error:
            _log.debug("the rights on topic %s are not known: %s", name, error)
        else:
            if may is not None and _MAY_WRITE.isdisjoint(may):
                found.append(name)
    return found or wanted


def _client(kafka: Mapping[str, str]) -> AdminClient | None:
    """Return a client; None: there can be none now, and what it would be asked is not known."""
    try:
        return client_of(AdminClient, for_client(kafka), _log)
    except NoClient as error:
        _log.debug("no client to ask with: %s", error)
        return None
