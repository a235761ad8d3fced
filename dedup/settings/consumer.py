"""Settings of a consumer and of `dovecote consume run`."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from dedup.rules.lanes.lanes import NullKey
from dedup.rules.topics import any_pattern, problem, reads_own
from dedup.settings.inbox import InboxSettings
from dedup.settings.properties import FIXED, SAID_BY, client_properties
from dedup.settings.retries import RetriesSettings
from dovecote.process.settings.models import HttpSettings, Settings
from dovecote.process.settings.values import KafkaProperties, PositiveDuration
from outbox.kafka import number

PREFIX = "DOVECOTE_CONSUME"
_INTERVAL = "topic.metadata.refresh.interval.ms"
# The client's own default.
_INTERVAL_MILLISECONDS = 300_000


class ConsumerSettings(Settings):
    """One consumer: from topics of one Kafka cluster to one handler."""

    topics: Annotated[Sequence[str], Field(min_length=1), AfterValidator(tuple)]
    """Topics to read. `^` begins a regular expression: every topic whose name begins with what it
    matches is read, also one that is made later."""

    partitions: dict[str, tuple[Annotated[int, Field(ge=0)], ...]] | None = None
    """For each topic, the numbers of the partitions to read; a topic that is not listed is read
    whole. No other member shares them. Absent: the group shares the partitions."""

    group: Annotated[str, Field(min_length=1)]
    """Consumer group: its members share the partitions, and it is what offsets are kept for."""

    kafka: KafkaProperties
    """Any librdkafka property; `bootstrap.servers` at least."""

    policy: Literal["exact", "latest", "first_match", "every"] = "exact"
    """Which records of a key are handled, of those polled together: each event once, the newest,
    the first that passes and succeeds, or every one."""

    filter: str | None = None
    """A Starlark expression over value, key, headers, or `module:function`; none: all pass."""

    value: Literal["json", "raw", "avro", "protobuf", "json_schema"] = "json"
    """How record values are written; the last three need `registry`, and Protobuf `message`."""

    message: str | None = None
    """`module:Class` that Protobuf made, for `value = "protobuf"`."""

    registry: KafkaProperties = Field(default_factory=dict)
    """Settings of confluent-kafka's schema registry client; `url` at least."""

    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Records that are handled at a time, each of another key; threads, unless the handler is
    async."""

    batch_size: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Records that are polled at a time, and that a policy decides on."""

    handler_batch: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Above 1, the handler takes a list of at most this many events, and answers for each."""

    order: Literal["key", "partition", "none"] = "key"
    """
    Records that are handled one after the other: those of a `key`, of a `partition`, or none.
    """

    null_key: NullKey = "apart"
    """Records without a key: `apart`, in no order, or `partition`, one after the other."""

    max_records: Annotated[int, Field(ge=1)] = 5_000
    """Most records in memory; polling goes on without taking more."""

    max_bytes: Annotated[int, Field(ge=1)] = 64_000_000
    """Most bytes of their keys, values, and headers where these are large."""

    max_skew: Annotated[int, Field(ge=1)] = 20_000
    """
    Most records of a partition from the first that is not completed to the newest: a crash repeats
    no more.
    """

    commit_every: PositiveDuration = timedelta(seconds=1)
    """How often offsets are committed."""

    drain: PositiveDuration = timedelta(seconds=10)
    """How long running handlers may go on when a partition is given up or the process ends."""

    protocol: Literal["classic", "consumer"] = "classic"
    """Group protocol; `consumer` is KIP-848, and needs Kafka 4.0."""

    assignor: Literal["range", "cooperative-sticky"] = "cooperative-sticky"
    """How members of a classic group share; the same for all of them."""

    instance: str | None = None
    """Name of a static member, which keeps its partitions while it restarts."""

    start: Literal["earliest", "latest"] = "earliest"
    """Where a group begins that has committed nothing. Partitions and topics that come later begin
    at their beginning."""

    stall_after: PositiveDuration = timedelta(seconds=60)
    """/readyz fails when records are in memory and none was completed for this long."""

    behind_after: PositiveDuration = timedelta(minutes=5)
    """A consumer is `behind` while a record in memory is older than this: see
    [states](states.md)."""

    retries: RetriesSettings = RetriesSettings()
    """How to treat records that are not handled to their end."""

    inbox: InboxSettings | None = None
    """Where handled events are remembered; the handler then takes a transaction as well."""

    @field_validator("kafka")
    @classmethod
    def _leave_guarantees_alone(cls, kafka: dict[str, str]) -> dict[str, str]:
        if "bootstrap.servers" not in kafka:
            msg = '"bootstrap.servers" is missing'
            raise ValueError(msg)
        if fixed := sorted(FIXED & kafka.keys()):
            why = [
                f"{name} cannot be set: "
                + (f"say `{SAID_BY[name]}`" if name in SAID_BY else "a guarantee rests on it")
                for name in fixed
            ]
            raise ValueError("; ".join(why))
        return kafka

    @model_validator(mode="after")
    def _readable(self) -> Self:
        needs_registry = self.value in {"avro", "protobuf", "json_schema"}
        if needs_registry and "url" not in self.registry:
            msg = f'value = "{self.value}" needs a table `registry` with the `url` of the registry'
            raise ValueError(msg)
        if (self.value == "protobuf") != (self.message is not None):
            msg = 'message = "module:Class" and value = "protobuf" need each other'
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _decidable(self) -> Self:
        if self.handler_batch > 1 and self.policy == "first_match":
            msg = "first_match tries one record after the other: handler_batch must be 1"
            raise ValueError(msg)
        if self.policy == "first_match" and not self.retries.tiers:
            msg = "first_match never holds a key: it needs retries.tiers"
            raise ValueError(msg)
        return self

    @field_validator("topics")
    @classmethod
    def _named(cls, topics: Sequence[str]) -> Sequence[str]:
        if (wrong := problem(topics)) is not None:
            raise ValueError(wrong)
        return topics

    @model_validator(mode="after")
    def _does_not_read_its_own(self) -> Self:
        own = dict.fromkeys(self.retries.retry_topics(), "records to be tried again")
        if self.retries.dead_letter_topic is not None:
            own[self.retries.dead_letter_topic] = "dead letters"
        if (wrong := reads_own(self.topics, own)) is not None:
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _assignable(self) -> Self:
        if self.order != "key" and self.policy in {"latest", "first_match"}:
            msg = f"{self.policy} chooses among the records of a key: order must be key"
            raise ValueError(msg)
        if self.partitions is None:
            return self
        if unread := sorted(self.partitions.keys() - set(self.topics_read())):
            msg = f"partitions names {unread[0]}, which is not among the topics"
            raise ValueError(msg)
        if any_pattern(self.topics):
            msg = "partitions and a pattern of topics exclude each other"
            raise ValueError(msg)
        if twice := [name for name, all_ in self.partitions.items() if len({*all_}) != len(all_)]:
            msg = f"partitions names a partition of {twice[0]} twice"
            raise ValueError(msg)
        return self

    @property
    def incremental(self) -> bool:
        """Whether the group's protocol changes an assignment by its difference."""
        return self.partitions is None and (
            self.protocol == "consumer" or self.assignor == "cooperative-sticky"
        )

    @property
    def refresh(self) -> float:
        """After how many seconds the client looks at the topics again."""
        milliseconds = number(self.kafka.get(_INTERVAL, _INTERVAL_MILLISECONDS))
        return milliseconds / 1000 if milliseconds > 0 else math.inf

    def lane_of_no_key(self) -> NullKey:
        """Return the lane for records that have no key."""
        return {"key": self.null_key, "partition": "partition", "none": "apart"}[self.order]

    def topics_read(self) -> list[str]:
        """Return the topics to read: its own and the retry topics."""
        return [*self.topics, *self.retries.retry_topics()]

    def client_properties(self) -> dict[str, str | int | bool]:
        """Return the configuration of the Kafka client."""
        return client_properties(
            self.kafka,
            group=self.group,
            protocol=self.protocol,
            assignor=self.assignor,
            instance=self.instance,
        )


class ConsumeSettings(ConsumerSettings):
    """A consumer that is a process of its own: `dovecote consume run`."""

    handler: str | None = None
    """`module:function`, unless the command line says it."""

    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes of the group under this one, for more cores; every other number is per process."""

    http: HttpSettings = HttpSettings()

    @model_validator(mode="after")
    def _shared(self) -> Self:
        if self.processes > 1 and self.partitions is not None:
            msg = (
                "processes share the partitions of a group, and partitions takes them away from "
                "it: set one of the two"
            )
            raise ValueError(msg)
        return self

    def of_process(self, number: int) -> Self:
        """Return the settings of one of several processes, which answers its parent alone."""
        own = {"host": "127.0.0.1", "port": None if self.http.port is None else 0, "hosts": ()}
        return self.model_copy(
            update={
                "http": self.http.model_copy(update=own),
                "instance": self.instance and f"{self.instance}-{number}",
            }
        )
