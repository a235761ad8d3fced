"""
One connection to Kafka in two forms: librdkafka's properties, and the Java client's for Spark.

Settings have librdkafka's properties. Addresses, TLS and SASL are translated for Spark's source;
everything else (batching, timeouts) is for the sink only.
"""

from collections.abc import Mapping
from pathlib import Path

from outbox.errors import BadSettings
from outbox.kafka import PARTITIONER

PREFIX = "kafka."
"""The prefix of the Java client's properties in Spark's source."""

_SAME = {
    "bootstrap.servers",
    "security.protocol",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "sasl.kerberos.service.name",
}
_READ = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_TEXT = {
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_CLIENT = ("bootstrap.", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.", "oauth")

_DEFAULTS = {
    "compression.type": "lz4",
    "linger.ms": "5",
    "batch.size": "1000000",
    # The broker's own default, like the relay's: the events that it publishes come through here.
    "message.max.bytes": "1048588",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "1048576",
    # librdkafka asks for a producer id with pauses of its own, which are long compared with a
    # transaction.
    "retry.backoff.ms": "5",
    "retry.backoff.max.ms": "500",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "2000",
    "client.id": "dovecote-spark",
}
_SOURCE_DEFAULTS = {
    # A task knows that its records are there. But its client lets the broker hold a fetch after
    # the last of them, and the next request, for the partition's end, is answered only after that.
    # With Kafka's own 500 ms, every task would take at least that long.
    "fetch.max.wait.ms": "10",
}
_GUARANTEES: Mapping[str, str | bool] = {
    "acks": "all",
    "enable.idempotence": "true",
    # librdkafka's default differs from Java's, and a key would change its partition.
    **PARTITIONER,
    "delivery.report.only.error": True,
}

FIXED = frozenset(
    {*_GUARANTEES, "transactional.id", "transaction.timeout.ms", "message.timeout.ms"}
    | {"isolation.level", "enable.gapless.guarantee"}
)
"""Properties that exactly-once depends on; settings that name one are refused."""


def leave_guarantees_alone(properties: dict[str, str]) -> dict[str, str]:
    """
    Return the `[kafka]` table of a job's settings unchanged.

    Raises:
        ValueError: it lacks the brokers, or sets what exactly-once depends on.
    """
    if "bootstrap.servers" not in properties:
        msg = '"bootstrap.servers" is missing'
        raise ValueError(msg)
    if fixed := sorted(FIXED & properties.keys()):
        msg = f"{', '.join(fixed)} cannot be set: exactly once rests on it"
        raise ValueError(msg)
    return properties


def client(properties: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties that say how to reach the broker."""
    return {name: value for name, value in properties.items() if name.startswith(_CLIENT)}


def producer(
    properties: Mapping[str, str], *, transactional_id: str, timeout: float
) -> dict[str, str | int | float | bool]:
    """Return a transactional producer's configuration: guarantees over `properties`."""
    milliseconds = str(round(timeout * 1000))
    return {
        **_DEFAULTS,
        **properties,
        **_GUARANTEES,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": milliseconds,
        "message.timeout.ms": milliseconds,
    }


def source(properties: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """
    Return the options of Spark's Kafka source: ours, then `properties`, then `own`.

    Raises:
        BadSettings: a property has no equivalent in Java, or its file cannot be read.
    """
    java = dict(_SOURCE_DEFAULTS)
    for name, value in properties.items():
        java |= _translated(name, value)
    java |= _login(properties)
    if any(name.startswith("ssl.truststore.cert") for name in java):
        java["ssl.truststore.type"] = "PEM"
    if any(name.startswith("ssl.keystore.key") for name in java):
        java["ssl.keystore.type"] = "PEM"
    return {PREFIX + name: value for name, value in java.items()} | dict(own)


def _translated(name: str, value: str) -> dict[str, str]:
    match name:
        case _ if name in _SAME:
            return {name: value}
        case _ if name in _READ:
            return {_READ[name]: _file(name, value)}
        case _ if name in _TEXT:
            return {_TEXT[name]: value}
        case "sasl.mechanism" | "sasl.mechanisms":
            return {"sasl.mechanism": value}
        case "ssl.endpoint.identification.algorithm":
            return {name: "" if value == "none" else value}
        case "enable.ssl.certificate.verification" if value == "false":
            msg = (
                f"kafka.{name}: Spark's Java client cannot leave certificates unverified; "
                "give it the authority in ssl.ca.location"
            )
            raise BadSettings(msg)
        case _:
            return {}


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    if "sasl.username" not in properties:
        return {}
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", "")
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        msg = (
            f"kafka: sasl.username goes with a sasl.mechanism of {', '.join(_LOGIN_MODULES)}, "
            f"not {mechanism!r}; for others set kafka.sasl.jaas.config in [source.options]"
        )
        raise BadSettings(msg)
    user = _quoted(properties["sasl.username"])
    password = _quoted(properties.get("sasl.password", ""))
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _file(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"kafka.{name}: cannot read {path} as PEM text: {error}"
        raise BadSettings(msg) from error
