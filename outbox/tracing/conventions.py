"""The names that spans have, by the semantic conventions of OpenTelemetry."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

VERSION: Final = "1.44.0"
"""The version of the conventions; the messaging part of it is not stable yet."""
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"

Value: TypeAlias = str | int | bool | float
Attributes: TypeAlias = dict[str, Value]

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
KIND: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
OFFSET: Final = "messaging.kafka.offset"
KEY: Final = "messaging.kafka.message.key"
TOMBSTONE: Final = "messaging.kafka.message.tombstone"
GROUP: Final = "messaging.consumer.group.name"
MESSAGE: Final = "messaging.message.id"
COUNT: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"

METHOD: Final = "http.request.method"
STATUS: Final = "http.response.status_code"
RESENT: Final = "http.request.resend_count"
URL: Final = "url.full"
HOST: Final = "server.address"
PORT: Final = "server.port"

OUTBOX: Final = "dovecote.outbox"
ATTEMPT: Final = "dovecote.attempt"
OUTCOME: Final = "dovecote.outcome"
REASON: Final = "dovecote.reason"
VIA: Final = "dovecote.via"
SUBSCRIPTION: Final = "dovecote.subscription"
QUERY: Final = "dovecote.query"
BATCH: Final = "dovecote.batch"

OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
DISABLED: Final = "OTEL_SDK_DISABLED"
KEYS: Final = "DOVECOTE_TRACE_KEYS"
CREATION: Final = "DOVECOTE_TRACE_CREATION"

MOST_LINKS: Final = 128
"""The most links of a span, which is the number that the SDK keeps by default."""
MOST_TEXT: Final = 200
"""The most characters of an id, a key or a reason."""

# The names in version 1.24 of the messaging conventions, and before 1.21 of those for HTTP.
_OLD: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "messaging": MappingProxyType(
            {
                KIND: "messaging.operation",
                PARTITION: "messaging.kafka.destination.partition",
                OFFSET: "messaging.kafka.message.offset",
                GROUP: "messaging.kafka.consumer.group",
            }
        ),
        "http": MappingProxyType(
            {METHOD: "http.method", STATUS: "http.status_code", URL: "http.url"}
        ),
    }
)


def older(environ: Mapping[str, str]) -> Mapping[str, str]:
    """
    Return the older names that attributes are to have as well, by their present ones.

    `messaging/dup` and `http/dup` in `OTEL_SEMCONV_STABILITY_OPT_IN` ask for them. Everything else
    leaves the present names alone, because Dovecote never used others by themselves.
    """
    asked = {each.strip() for each in environ.get(OPT_IN, "").split(",")}
    found: dict[str, str] = {}
    for category, names in _OLD.items():
        if f"{category}/dup" in asked:
            found |= names
    return found


def flag(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a switch of the environment; anything but `true` and `false` is the default."""
    said = environ.get(name, "").strip().lower()
    return said == "true" if said in {"true", "false"} else default
