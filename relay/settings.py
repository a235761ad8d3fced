"""Settings of `dovecote relay run`."""

import re
from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from dovecote.process.settings.models import HttpSettings, Settings
from dovecote.process.settings.values import (
    Dsn,
    Duration,
    KafkaProperties,
    PositiveDuration,
    TransactionTimeout,
)
from outbox.kafka import number
from relay.kafka.properties import FIXED, LARGEST, Mode, producer_properties
from relay.rules.parking import Policy
from relay.rules.sharding import SHARD, Shard, divided

PREFIX = "DOVECOTE_RELAY"

# Services cannot write to topics with this prefix.
_PROGRESS = "dovecote.progress."
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PATTERN = re.compile(r"([a-zA-Z0-9._*?-]|\[!?[a-zA-Z0-9._-]+\])+")

_SHARD_NAME = re.compile(rf".*{re.escape(SHARD)}[0-9]+", re.DOTALL)

TRANSACTIONAL_IDS = "dovecote.relay."
"""
The prefix of the transactional ids. The outbox's name and its own id follow, so that no other
program has the same id by chance: two with the same one would fence each other without end.
"""


class WalSettings(Settings):
    """How capture from the write-ahead log treats its replication slot."""

    heartbeat: PositiveDuration = timedelta(seconds=10)
    """Where no events are, the slot moves on this often, so that the server can forget."""

    warn_bytes: int | None = Field(default=1_000_000_000, ge=1)
    """A slot that holds back more of the log than this is warned of."""

    stop_bytes: int | None = Field(default=None, ge=1)
    """Beyond this the slot is dropped to save the server's disk, and the relay ends: events that
    were not published are lost to it. Default: never."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.warn_bytes and self.stop_bytes and self.stop_bytes <= self.warn_bytes:
            msg = "stop_bytes must be more than warn_bytes: nobody would be warned"
            raise ValueError(msg)
        return self


class RelaySettings(Settings):
    """One relay: from one outbox of one database to one Kafka cluster."""

    dsn: Dsn
    """The database: a libpq connection string or a table of libpq parameters (TLS and all)."""

    kafka: KafkaProperties
    """Any librdkafka property; `bootstrap.servers` at least."""

    schema_name: str = Field(default="outbox", alias="schema")
    """The Postgres schema the outbox is installed in."""

    name: str = ""
    """Name of this outbox in its progress topic, transactional ids and metrics. Default: the
    schema. Never shared by two databases on one Kafka cluster. Does not end like `.shard-0`."""

    capture: Literal["auto", "table", "wal"] = "auto"
    """Where events are read: `auto` follows `dovecote init outbox --capture`, also while the relay
    runs; `table` and `wal` refuse to read anywhere else."""

    shards: int = Field(default=1, ge=1, le=64)
    """How many relays share the work, each with the keys of one shard: the same for all relays of
    an outbox, and changed with `dovecote relay reshard`."""

    shard: int | None = Field(default=None, ge=0)
    """Publish this shard alone, counted from 0. Default: any that no other relay publishes."""

    mode: Mode = "exactly_once"
    """
    `at_least_once` saves the transactions; a crash, or an event that Kafka refuses, may then
    repeat the batch in flight.
    """

    progress_topic: str = ""
    """Compacted topic with one partition. Default: `dovecote.progress.<name>`."""

    batch_rows: int = Field(default=15_000, ge=1, le=200_000)
    """Most events in one Kafka transaction."""

    batch_bytes: int = Field(default=16_000_000, ge=1_000)
    """Most bytes of keys, values and headers in one transaction (a single larger event is one
    alone)."""

    poll_min: PositiveDuration = timedelta(milliseconds=1)
    """Shortest time from one poll of the table to the next while events flow."""

    poll_max: PositiveDuration = timedelta(milliseconds=100)
    """The pause doubles up to this while there is nothing to do."""

    lease: PositiveDuration = timedelta(seconds=10)
    """A relay that Postgres has not heard from for this long loses the active role; from 1s to
    24h."""

    standby_poll: PositiveDuration = timedelta(milliseconds=500)
    """How often a standby asks for the active role."""

    transaction_timeout: TransactionTimeout = timedelta(seconds=60)
    """Longest a batch may wait for the broker; what it left open is aborted after that."""

    on_poison: Policy = "hold"
    """When an event is parked, `hold` parks the later ones of its key after it, `skip` publishes
    them."""

    park_after: Duration = timedelta(seconds=10)
    """How long the relay itself requeues the events of a missing or forbidden topic, which are
    parked at once, as soon as they can be published; later, a person does."""

    park_most: int = Field(default=100_000, ge=1)
    """When more events of one topic are parked, the relay says so in its log, in a metric and in
    `doctor`. It goes on parking, and publishing what is not parked."""

    park_most_of_key: int = Field(default=10_000, ge=1)
    """The same, for the events of one key of one topic."""

    topics: tuple[str, ...] = ()
    """Topics that services may write to (`orders.*` is a pattern); events for others are parked.
    Default: all."""

    stall_after: Duration = timedelta(seconds=10)
    """/readyz answers 503 after this long without progress."""

    behind_after: PositiveDuration = timedelta(minutes=1)
    """A relay is `behind` while an event waits longer than this: see [states](states.md)."""

    retention: Duration = timedelta(0)
    """Published events stay in the table at least this long, to be looked up there."""

    rotate_every: PositiveDuration = timedelta(seconds=10)
    """Shortest time between two changes of the leaf that writers write to."""

    http: HttpSettings = HttpSettings()

    wal: WalSettings = WalSettings()

    @field_validator("kafka")
    @classmethod
    def _leave_guarantees_alone(cls, kafka: dict[str, str]) -> dict[str, str]:
        if "bootstrap.servers" not in kafka:
            msg = '"bootstrap.servers" is missing'
            raise ValueError(msg)
        if fixed := sorted(FIXED & kafka.keys()):
            msg = f"{', '.join(fixed)} cannot be set: a guarantee rests on it"
            raise ValueError(msg)
        return kafka

    @field_validator("lease")
    @classmethod
    def _worth_a_heartbeat(cls, value: timedelta) -> timedelta:
        if value < timedelta(seconds=1):
            msg = "must be at least 1s: every pause of a relay would cost it the active role"
            raise ValueError(msg)
        return value

    @field_validator("lease", "standby_poll", "poll_max")
    @classmethod
    def _a_day_at_most(cls, value: timedelta) -> timedelta:
        # Postgres and the socket's own wait take milliseconds of 32 bits.
        if value > timedelta(hours=24):
            msg = "must be at most 24h"
            raise ValueError(msg)
        return value

    @field_validator("name")
    @classmethod
    def _of_no_shard(cls, value: str) -> str:
        if _SHARD_NAME.fullmatch(value):
            msg = f"{value!r} is what a shard of another outbox is called: end it otherwise"
            raise ValueError(msg)
        return value

    @field_validator("progress_topic")
    @classmethod
    def _topic_name(cls, value: str) -> str:
        if not _TOPIC.fullmatch(value):
            msg = f"{value!r} is not a Kafka topic name; set `name` (or this) to a plain word"
            raise ValueError(msg)
        return value

    @field_validator("topics")
    @classmethod
    def _can_match(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # If not refused here, every event for the intended topic would be parked before anyone
        # noticed.
        for pattern in value:
            if not _PATTERN.fullmatch(pattern):
                msg = (
                    f"{pattern!r} matches no topic: names have letters, digits, '.', '_' and '-', "
                    "patterns '*', '?' and '[…]' too"
                )
                raise ValueError(msg)
        return value

    @model_validator(mode="before")
    @classmethod
    def _name_after_schema(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        name = data.get("name") or data.get("schema") or "outbox"
        topic = data.get("progress_topic") or f"{_PROGRESS}{name}"
        return {**data, "name": name, "progress_topic": topic}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.poll_min > self.poll_max:
            msg = f"poll_min {self.poll_min} is longer than poll_max {self.poll_max}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _divided(self) -> Self:
        if self.shard is not None and self.shard >= self.shards:
            msg = f"shard {self.shard} is none of shards = {self.shards}: they count from 0"
            raise ValueError(msg)
        if self.shards > 1 and not self.progress_topic.startswith(_PROGRESS):
            # Each relay knows only its own progress topic, and would publish to those of the
            # others.
            msg = f"progress_topic must begin with {_PROGRESS!r} where there are several shards"
            raise ValueError(msg)
        return self

    def own_shards(self) -> list[Shard]:
        """Return the shards that this relay may publish."""
        return [
            each for each in divided(self.name, self.shards) if self.shard in {None, each.number}
        ]

    def of(self, shard: Shard) -> Self:
        """Return the settings for publishing `shard`, which has names of its own in Kafka."""
        if shard.of == 1:
            return self
        # Never a partition of a topic that others write to: their open transactions hide ours.
        topic = f"{self.progress_topic}{SHARD}{shard.number}"
        return self.model_copy(update={"name": shard.name, "progress_topic": topic})

    def largest(self) -> int:
        """Return the most bytes that a record may have: librdkafka takes no larger one."""
        return number(self.kafka.get("message.max.bytes", LARGEST))

    def transactional_ids(self, outbox: str) -> tuple[str, str]:
        """Return the ids under which Kafka knows the producers that publish in turn."""
        first = f"{TRANSACTIONAL_IDS}{self.name}.{outbox}"
        return first, f"{first}.second-turn"

    def producer_properties(self, outbox: str, turn: int = 0) -> dict[str, str | bool]:
        """Return the configuration of a producer for the outbox with this id."""
        return producer_properties(
            self.kafka,
            mode=self.mode,
            transactional_id=self.transactional_ids(outbox)[turn],
            transaction_timeout=self.transaction_timeout.total_seconds(),
        )
