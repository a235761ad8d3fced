"""The Kafka client's configuration: our defaults, the operator's properties, and fixed ones."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException

from outbox.errors import BadSettings
from outbox.kafka import kafka_logger
from outbox.tokens.source import for_check, refreshed

_log = kafka_logger("dovecote.consumer.kafka")

Properties = dict[str, str | int | bool]


def client_properties(
    given: Mapping[str, str],
    *,
    group: str,
    protocol: str,
    assignor: str,
    instance: str | None,
) -> Properties:
    """
    Return the client's configuration: our defaults, `given` above them, guarantees above both.
    """
    defaults: Properties = {
        "client.id": "dovecote-consume",
        # Records fetched in addition to those in memory already. librdkafka's own defaults are
        # 100,000 records and 64 MB.
        "queued.min.messages": 10_000,
        "queued.max.messages.kbytes": 8_192,
        "fetch.message.max.bytes": 262_144,
        # How long to rest a partition whose queue was full; the default is a second.
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        # Otherwise the client takes a batch with a wrong checksum for a sound one.
        "check.crcs": True,
        # A connection is closed if an answer is overdue by this much; the default is a minute.
        "socket.timeout.ms": 30_000,
        # While all brokers are away, librdkafka tries each address this often: it starts with a
        # new connection every time, so its pauses never grow.
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 2_000,
    }
    fixed: Properties = {
        "group.id": group,
        "group.protocol": protocol,
        "isolation.level": given.get("isolation.level", "read_committed"),
        # The client would pass over records without a word. An error lets us decide where a
        # partition begins or goes on.
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # If a partition ends in transaction markers or aborted records, only this event shows its
        # end.
        "enable.partition.eof": True,
    }
    if protocol == "classic":
        fixed["partition.assignment.strategy"] = assignor
    if instance is not None:
        fixed["group.instance.id"] = instance
    return {**defaults, **refreshed(given), **fixed}


SAID_BY = {
    "group.id": "group",
    "group.protocol": "protocol",
    "group.instance.id": "instance",
    "partition.assignment.strategy": "assignor",
    "auto.offset.reset": "start",
}
"""Properties that settings determine, and which setting."""

FIXED = frozenset(
    SAID_BY.keys()
    | {"enable.auto.commit", "enable.auto.offset.store"}
    | {"enable.partition.eof", "statistics.interval.ms"}
)
"""
Properties that settings determine or a guarantee depends on; a file that names one is refused.
"""


def check_properties(properties: Properties) -> None:
    """
    Check that librdkafka takes `properties`, without contacting a broker.

    Raises:
        BadSettings: it does not; the message names the property.
    """
    given = for_check({**properties})
    given.pop("bootstrap.servers", None)
    try:
        Consumer(given, logger=_log).close()
    except KafkaException as error:
        msg = f"[kafka]: {error.args[0].str()}"
        raise BadSettings(msg) from error
