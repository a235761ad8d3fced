"""The tables of a subscription: target, form, order and retries of its requests."""

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    field_validator,
    model_validator,
)

from dovecote.push.rules.subscription.fields import (
    Charset,
    Headers,
    Model,
    Offset,
    Partition,
    Secret,
    Span,
    Topic,
    Wait,
    reference,
)

WithBody: TypeAlias = Literal["POST", "PUT", "PATCH", "DELETE"]
WithoutBody: TypeAlias = Literal["GET", "HEAD", "OPTIONS", "TRACE"]

BODYLESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

_URL = re.compile(r"https?://[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]{1,2000}")

# Answers about one record, which no later attempt changes. Every other 4xx may be about a path, a
# secret or a rule that somebody is changing just now.
_ABOUT_THE_RECORD = frozenset({400, 413, 415, 422})


def _time(value: object) -> object:
    if isinstance(value, str | datetime):
        return value
    # pydantic would read a number as seconds or milliseconds, depending on its size.
    msg = 'must be a time such as "2026-02-01T09:30:00+01:00"'
    raise ValueError(msg)


class At(Model):
    """Begin with the first records of this time, as Kafka records it, or later."""

    time: Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_time)]


class Offsets(Model):
    """Begin at these offsets; partitions that are not named stay where they are."""

    offsets: Annotated[
        dict[Topic, dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Offset]],
        Field(min_length=1, max_length=1000),
    ]
    """For each topic, by the number of the partition."""

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Yield topic, partition and offset."""
        for topic, partitions in self.offsets.items():
            for partition, offset in partitions.items():
                yield topic, int(partition), offset


def _kind(value: object) -> str:
    if isinstance(value, At | Offsets):
        return "at" if isinstance(value, At) else "offsets"
    if isinstance(value, dict):
        return "offsets" if "offsets" in value else "at"
    return "end"


Position: TypeAlias = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("end")]
    | Annotated[At, Tag("at")]
    | Annotated[Offsets, Tag("offsets")],
    Discriminator(_kind),
]
"""Where to begin."""


class Partitions(Model):
    """Some partitions of a topic, and no others, whatever other members the group has."""

    topic: Topic
    numbers: Annotated[tuple[Partition, ...], Field(strict=False, min_length=1, max_length=10_000)]


class Endpoint(Model):
    """Target and form of the requests."""

    url: Annotated[str, Field(max_length=2048)]
    """`http://…` or `https://…`, without user or password."""

    method: WithBody | WithoutBody = "POST"

    query_param_key: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{1,100}$")] = "message"
    """The parameter that holds the value if the method has no body."""

    charset: Charset = "UTF-8"
    """Charset of the values, as `Content-Type` names it for text."""

    detect_json: bool = True
    """
    Send a record without `content-type` as `application/json` if its value is JSON; otherwise as
    text. With a `charset` other than UTF-8 it is text.
    """

    headers: Headers = Field(default_factory=dict)
    """More headers, such as Authorization."""

    connect_timeout: Span = timedelta(seconds=10)
    """Longest time to connect, including TLS."""

    timeout: Span = timedelta(seconds=30)
    """Longest time for a request, from start to end."""

    max_response_bytes: Annotated[int, Field(ge=0, le=16_000_000)] = 64_000
    """Most bytes of an answer that are read; the connection of a longer one is closed."""

    handshake: bool = False
    """Ask with OPTIONS before the first request, as CloudEvents webhooks do."""

    @field_validator("url")
    @classmethod
    def _reachable(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or not _URL.fullmatch(value):
            msg = "is not a URL such as https://example.com/hook"
            raise ValueError(msg)
        if parts.username is not None or parts.password is not None:
            msg = "holds a user or a password: write them as an Authorization header"
            raise ValueError(msg)
        if parts.fragment:
            msg = "has a fragment (#…), which no server is sent"
            raise ValueError(msg)
        return value

    @property
    def has_body(self) -> bool:
        return self.method not in BODYLESS


class Signing(Model):
    """Standard Webhooks signatures: one for each secret, so that old and new overlap."""

    secrets: Annotated[tuple[Secret, ...], Field(strict=False, min_length=1, max_length=10)]
    """`whsec_…` signs as `v1` (HMAC-SHA256), `whsk_…` as `v1a` (ed25519)."""

    @field_validator("secrets")
    @classmethod
    def _usable(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for each in value:
            if reference(each) is None:
                signing_key(each.get_secret_value())
        return value


def signing_key(text: str) -> tuple[Literal["v1", "v1a"], bytes]:
    """
    Return the kind of signature that a secret makes, and its key.

    Raises:
        ValueError: it is not a signing secret; the message does not show it.
    """
    prefix, _, encoded = text.partition("_")
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if prefix == "whsec" and 24 <= len(key) <= 64:  # noqa: PLR2004  # Standard Webhooks says so
        return "v1", key
    if prefix == "whsk" and len(key) in {32, 64}:
        return "v1a", key[:32]  # the seed; some keys have the public key after it
    msg = (
        "write whsec_ and 24 to 64 bytes in base64, or whsk_ and an ed25519 key, or env:NAME or "
        "file:NAME"
    )
    raise ValueError(msg)


class PerKey(Model):
    """Records with the same key in sequence, different keys in parallel."""

    type: Literal["per_key"] = "per_key"

    null_key: Literal["apart", "partition"] = "apart"
    """Records without a key: in no order, or one after the other."""


class Prefix(Model):
    """
    The number of records in flight of a partition, and when its finished prefix is committed.
    """

    concurrency_factor: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Requests in flight for each partition, and the most that a crash repeats; 1 keeps order."""

    auto_commit_period: Wait = timedelta(0)
    """
    How often the finished prefix is committed, which makes room; 0: the next bundle begins once
    the whole last one is finished and committed.
    """

    load_factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    """Number of bundles that are read ahead."""


class PerPartition(Prefix):
    """A number of records of a partition at a time, in bundles, whatever their keys."""

    type: Literal["per_partition"]

    topics: Annotated[dict[Topic, Prefix], Field(max_length=1000)] = Field(default_factory=dict)
    """Settings for single topics, by name."""

    def of(self, topic: str) -> Prefix:
        """Return the settings for the partitions of `topic`."""
        return self.topics.get(topic, self)


Order: TypeAlias = Annotated[PerKey | PerPartition, Field(discriminator="type")]


class Backoff(Model):
    """Waits that double, with jitter; `Retry-After` takes precedence."""

    type: Literal["backoff"] = "backoff"

    max_attempts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Attempts before a record is a dead letter."""

    base: Span = timedelta(seconds=1)
    """Longest wait after the first failure; doubles with each."""

    ceiling: Span = timedelta(minutes=5)
    """Longest wait."""

    dead_statuses: (
        Annotated[
            tuple[Annotated[int, Field(ge=300, le=599)], ...],
            Field(strict=False, max_length=300),
        ]
        | None
    ) = None
    """
    Statuses after which there is no other attempt. Default: 400, 413, 415 and 422, the answers
    about the record itself.
    """

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.base > self.ceiling:
            msg = "base is longer than ceiling"
            raise ValueError(msg)
        return self

    def is_dead(self, status: int) -> bool:
        """Return whether a status makes a record a dead letter at once."""
        if self.dead_statuses is not None:
            return status in self.dead_statuses
        return status in _ABOUT_THE_RECORD


class Fixed(Model):
    """The same wait each time, whatever the failure: 4xx, 5xx or no answer at all."""

    type: Literal["fixed"]

    delay: Wait = timedelta(0)
    """Wait before a record is sent again."""

    resends: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Times that a record is sent again before it is a dead letter; 0: without end."""

    def is_dead(self, status: int) -> bool:  # noqa: ARG002  # as `Backoff` does
        """Return whether a status makes a record a dead letter at once: none does."""
        return False

    @property
    def max_attempts(self) -> int | None:
        """Times that a record is sent before it is a dead letter; None: without end."""
        return self.resends + 1 if self.resends else None


Retry: TypeAlias = Annotated[Backoff | Fixed, Field(discriminator="type")]


class Limits(Model):
    """The load that an endpoint gets."""

    max_in_flight: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Concurrent requests; fewer while the endpoint is slow or fails."""

    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Requests a second; default: as many as it takes."""
