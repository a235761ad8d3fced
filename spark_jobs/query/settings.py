"""Settings of `dovecote spark dedup`: one TOML file, one query."""

from datetime import timedelta
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from dedup.retries.backoff import Backoff
from dedup.settings.policy import ExactSettings, FirstMatchSettings, LatestSettings, PolicySettings
from dedup.settings.retries import RetrySettings, TopicName
from dovecote.process import strict_json
from dovecote.process.settings.durations import duration
from dovecote.process.settings.models import HttpSettings, Settings
from dovecote.process.settings.values import Duration, KafkaProperties, TransactionTimeout
from spark_jobs.checkpoint.pins import HASH, JOB, MURMUR2, QUERY, TOPICS, Pins
from spark_jobs.query.conf import SparkConf
from spark_jobs.sink.kafka_options import FIXED_READING, leave_guarantees_alone
from spark_jobs.sink.outgoing import Topics
from spark_jobs.source import topics

PREFIX = "DOVECOTE_SPARK"

Grouping: TypeAlias = Literal["auto", "partitions", "shuffle"]
_Offset: TypeAlias = Annotated[int, Field(strict=True, ge=-2, lt=2**63)]
# One way to write each number: no other would be found again, or one would come twice.
_PARTITION = "(0|[1-9][0-9]{0,9})"
_Partition: TypeAlias = Annotated[str, Field(pattern=f"^{_PARTITION}$")]
_Place: TypeAlias = Annotated[
    str, Field(pattern=f"^[a-zA-Z0-9._-]{{1,249}}/{_PARTITION}/[0-9]{{1,19}}$")
]


def _can_match(entries: tuple[str, ...]) -> tuple[str, ...]:
    if (problem := topics.problem(entries)) is not None:
        raise ValueError(problem)
    return entries


TopicEntries: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_can_match)]
"""Names of topics, patterns, and exclusions."""


class SourceSettings(Settings):
    """The topics to read, always `read_committed`, with the same client as everything else."""

    topics: Annotated[TopicEntries, Field(min_length=1)]
    """
    Topics to read: names, and shell patterns such as `orders.*`. An entry that begins with `!`
    takes topics out of the patterns: `"!orders.old"`.
    """

    starting_offsets: str = "earliest"
    """
    Where a new checkpoint begins: `earliest`, `latest`, or JSON: `{"orders": {"0": 42}}`, in which
    -2 means the earliest offset and -1 the latest.
    """

    max_offsets_per_trigger: int = Field(default=100_000, ge=1)
    """The most rows in one micro-batch. A task's share of it is held in memory."""

    max_bytes_per_trigger: int | None = Field(default=None, ge=1)
    """
    The most bytes of values in one micro-batch, by the mean size of the rows before it; no value:
    any number. The first batch after a start takes each row for 1 MiB. Set it for large records.
    """

    expired: Literal["refuse", "skip"] = "refuse"
    """
    The answer to records that a topic has deleted before the job read them: `refuse` stops the
    job; `skip` goes on, and each batch says how many offsets are gone.
    """

    skip: tuple[_Place, ...] = ()
    """
    Places of records that are never read: topic, partition and offset, as in `orders/0/42`. It is
    for a record that cannot be read, or that ends the job.
    """

    options: KafkaProperties = Field(
        default_factory=dict, repr=False, json_schema_extra={"open": True}
    )
    """Further librdkafka properties of the consumers alone, such as `client.rack`."""

    @field_validator("starting_offsets")
    @classmethod
    def _known_offsets(cls, text: str) -> str:
        if text not in {"earliest", "latest"}:
            try:
                TypeAdapter(dict[str, dict[_Partition, _Offset]]).validate_json(text)
                strict_json.loads(text)
            except ValidationError as error:
                msg = (
                    'must be "earliest", "latest" or JSON of offsets from -2 on '
                    f'({{"topic": {{"0": 42}}}}): {error.errors()[0]["msg"]}'
                )
                raise ValueError(msg) from None
        return text

    @field_validator("options")
    @classmethod
    def _leave_ours_alone(cls, options: dict[str, str]) -> dict[str, str]:
        if fixed := sorted(FIXED_READING & options.keys()):
            msg = f"{', '.join(fixed)} cannot be set: exactly once rests on it"
            raise ValueError(msg)
        return options


class OutputSettings(Settings):
    """The topics to write. A record never says where it goes; only this table does."""

    topic: TopicName
    """Topic for handled records."""

    by_type: dict[str, TopicName] = Field(default_factory=dict)
    """Topics that replace `topic` for handled events of these types (`ce_type`)."""

    retry_topic: TopicName
    """Topic for records that failed and have attempts left, or asked to come again."""

    dead_letter_topic: TopicName
    """Topic for records that failed for good, or too often."""


class SparkSettings(Settings):
    """The streaming query, and the Spark in which it runs."""

    query: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,100}$")]
    """
    Its name: part of the transactional ids and of the marker topic. Each query needs its own name.
    """

    @field_validator("query")
    @classmethod
    def _free(cls, name: str) -> str:
        return topics.require_free(name)

    checkpoint: str = Field(min_length=1)
    """Where Spark keeps the query's progress: a folder, or a URL that the cluster can write to."""

    shuffle_partitions: int = Field(default=4, ge=1, le=10_000)
    """
    The number of tasks per batch that handle and write. A change needs one run with `--adopt`;
    with state (stateful jobs, `operator.remember`, recirculation), it needs a new checkpoint, too.
    """

    grouping: Grouping = "auto"
    """
    How the records of a key meet, in a job without state. `partitions`: each task reads whole
    partitions and decides; a record that Kafka's own partitioner would have put elsewhere goes
    through the retry topic. `shuffle`: right for any partitioner, and slower. `auto`: begins with
    a shuffle, and goes over when no record lay elsewhere.
    """

    trigger: str = "1s"
    """The time between the starts of two batches, or `available_now`: end when all is read."""

    master: str | None = None
    """Where Spark runs (default `local[*]`); spark-submit decides for itself."""

    conf: SparkConf = Field(default_factory=dict)
    """
    Any other Spark configuration. A value may be a pointer to a secret, as in `kafka`; Spark gets
    it as it is at the start of the job.
    """

    @field_validator("trigger")
    @classmethod
    def _is_trigger(cls, text: str) -> str:
        if text != "available_now":
            duration(text)
        return text

    def pause(self) -> timedelta:
        """Return the time from the start of one batch to the start of the next."""
        if self.trigger == "available_now":
            return timedelta(0)
        return TypeAdapter(Duration).validate_python(self.trigger)


class StateSettings(Settings):
    """How state is kept."""

    buckets: Annotated[int, Field(ge=1, le=4_096)] = 16
    """
    Groups of keys whose state is kept together; `global` stream time has one. A change needs a new
    checkpoint, and one run with `--adopt`.
    """

    max_bucket_bytes: Annotated[int, Field(ge=1)] = 64 * 2**20
    """A bucket whose state is larger stops the job."""


class RecirculationSettings(Settings):
    """How records of the retry topic come back when they are due."""

    run: Literal["together", "separate"] = "separate"
    """
    `together`: this job also holds them and puts them back on the topics they came from, in a
    second query. `separate`: another process does, `dovecote spark delay`.
    """

    checkpoint: str | None = None
    """Where the second query's progress is; default: `spark.checkpoint` with `.delay` appended."""

    trigger: Duration = timedelta(seconds=1)
    """The time between two looks at what is due."""


class DedupSettings(Settings):
    """One deduplicating query: from topics, by a policy, to topics."""

    kafka: KafkaProperties
    """Any librdkafka property; `bootstrap.servers` at least."""

    source: SourceSettings

    operator: Annotated[
        FirstMatchSettings | ExactSettings | LatestSettings, Field(discriminator="type")
    ]
    """The policy, its filter and its handler; the same table that `dovecote replay` reads."""

    output: OutputSettings

    retry: RetrySettings = RetrySettings()

    recirculation: RecirculationSettings = RecirculationSettings()

    state: StateSettings = StateSettings()
    """The state of remembered records, and of those that wait to come back."""

    spark: SparkSettings

    transaction_timeout: TransactionTimeout = timedelta(seconds=60)
    """How long the writing of one shuffle partition may take; handlers do not count."""

    stall_after: Duration = timedelta(seconds=120)
    """/readyz says no if no batch was finished for this long, plus the trigger's pause."""

    behind_after: Duration = timedelta(minutes=5)
    """A job is `behind` while records wait and the newest that it read is older than this: see
    [states](states.md)."""

    http: HttpSettings = HttpSettings()

    _leave_guarantees_alone = field_validator("kafka")(leave_guarantees_alone)

    @field_validator("operator")
    @classmethod
    def _one_key(cls, operator: PolicySettings) -> PolicySettings:
        if operator.key != "record":
            msg = 'key must be "record" here: Spark groups by the record\'s own key'
            raise ValueError(msg)
        return operator

    @model_validator(mode="after")
    def _no_loop(self) -> Self:
        read = self.source.topics
        output = self.output
        for topic in (output.topic, *output.by_type.values(), output.dead_letter_topic):
            if topic in read:
                msg = f"topic {topic!r} is read and written: its records would never end"
                raise ValueError(msg)
        # The retry topic may be read, but not by accident.
        if (problem := topics.read_by_pattern(self.topics_written(), read)) is not None:
            raise ValueError(problem)
        handled = {output.topic, *output.by_type.values()}
        if len(handled | {output.retry_topic, output.dead_letter_topic}) != len(handled) + 2:
            msg = "output, retry and dead letter topics must be three different ones"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _comes_back(self) -> Self:
        if self.recirculation.run == "separate":
            return self
        if self.output.retry_topic in self.source.topics:
            msg = (
                f"topic {self.output.retry_topic!r} is read at once and recirculated as well: its "
                "records would be handled twice"
            )
            raise ValueError(msg)
        if not topics.plain(self.source.topics):
            msg = (
                "source.topics needs a plain name besides its patterns with recirculation.run = "
                '"together": records whose own topic is unknown go to the first plain one'
            )
            raise ValueError(msg)
        if self.spark.trigger == "available_now":
            msg = 'spark.trigger must be a duration with recirculation.run = "together"'
            raise ValueError(msg)
        return self

    def topics_written(self) -> tuple[str, ...]:
        output = self.output
        return (
            output.topic,
            *output.by_type.values(),
            output.retry_topic,
            output.dead_letter_topic,
        )

    def topics(self) -> Topics:
        """Return the topics of records."""
        return Topics(
            output=self.output.topic,
            by_type=self.output.by_type,
            retry=self.output.retry_topic,
            dead_letter=self.output.dead_letter_topic,
        )

    def backoff(self) -> Backoff:
        """Return how long failed records wait."""
        return self.retry.backoff()

    def pins(self) -> Pins:
        """Return the settings with which a checkpoint of the job must go on."""
        remembers = True if self.operator.remember is not None else None
        pins: dict[str, object] = {
            JOB: "dedup",
            QUERY: self.spark.query,
            TOPICS: sorted(self.source.topics),
            "operator.remember": remembers,
        }
        if remembers:
            pins["state.buckets"] = self.state.buckets
            pins[HASH] = MURMUR2
            pins["spark.shuffle_partitions"] = self.spark.shuffle_partitions
        return pins

    def marker_topic(self) -> str:
        """Return the topic of the query's markers."""
        return f"dovecote.markers.{self.spark.query}"

    def transactional_id(self) -> str:
        """Return the prefix of the transactional ids of the query's shuffle partitions."""
        return f"dovecote.{self.spark.query}"
