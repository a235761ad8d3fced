"""The producer's configuration: our defaults, the operator's properties, and the fixed ones."""

from collections.abc import Mapping
from typing import Literal

from confluent_kafka import KafkaException, Producer

from outbox.errors import BadSettings
from outbox.kafka import PARTITIONER, kafka_logger
from outbox.tokens.source import for_check, refreshed

_log = kafka_logger("dovecote.relay.kafka")

Mode = Literal["exactly_once", "at_least_once"]


# The broker's own default. librdkafka's, 1000000, is below what `outbox.Limits` accepts.
LARGEST = "1048588"


def producer_properties(
    given: Mapping[str, str], *, mode: Mode, transactional_id: str, transaction_timeout: float
) -> dict[str, str | bool]:
    """
    Return the producer's configuration: defaults, then `given`, then what guarantees need.

    Properties that a guarantee depends on cannot be changed; `RelaySettings` refuses them.
    """
    timeout = str(int(transaction_timeout * 1000))
    defaults: dict[str, str] = {
        "compression.type": "lz4",
        # A commit flushes at once; lingering only spares the broker thread many small requests. If
        # a batch takes longer to produce, its beginning is sent meanwhile.
        "linger.ms": "5",
        "batch.size": "1000000",
        "message.max.bytes": LARGEST,
        "queue.buffering.max.messages": "1000000",
        "queue.buffering.max.kbytes": "1048576",
        "message.timeout.ms": timeout,
        "retry.backoff.ms": "5",
        "retry.backoff.max.ms": "500",
        # While all brokers are away, each address is tried this often: librdkafka makes new
        # connections every time, and the pauses never grow. For half of this time after the first
        # connection it begins no other, so the first event waits that long.
        "reconnect.backoff.ms": "200",
        "reconnect.backoff.max.ms": "2000",
        # How long a topic may be missing before an event for it counts as unpublishable.
        "topic.metadata.propagation.max.ms": "5000",
        "client.id": "dovecote-relay",
    }
    fixed: dict[str, str | bool] = {
        "acks": "all",
        "enable.idempotence": "true",
        # librdkafka's default differs from Java's, and a key would change its partition.
        **PARTITIONER,
        "delivery.report.only.error": True,
    }
    if mode == "exactly_once":
        fixed |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout}
    else:
        # Records after a failed one must not be delivered before it is repeated. That does not
        # cover a record that times out, so none does.
        fixed |= {"enable.gapless.guarantee": "true", "message.timeout.ms": "0"}
    return {**defaults, **refreshed(given), **fixed}


FIXED = frozenset(
    {"acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee"}
    | {"partitioner", "delivery.report.only.error", "transactional.id", "isolation.level"}
    | {"transaction.timeout.ms", "message.timeout.ms", "delivery.timeout.ms"}
)
"""Properties that a guarantee depends on; settings that name one are refused."""


def check_properties(properties: Mapping[str, str | bool]) -> None:
    """
    Check that librdkafka accepts `properties`, without contacting a broker.

    Raises:
        BadSettings: it does not; the message names the property.
    """
    given = for_check({**properties})
    given.pop("bootstrap.servers", None)
    try:
        Producer(given, logger=_log)
    except KafkaException as error:
        msg = f"[kafka]: {error.args[0].str()}"
        raise BadSettings(msg) from error
