"""Settings of the stateful jobs: `dovecote spark pairing`, `sessions` and `delay`."""

from dataclasses import replace
from datetime import timedelta
from typing import Self

from pydantic import field_validator, model_validator

from dedup.settings.retries import TopicName
from dovecote.process.settings.models import HttpSettings, Settings
from dovecote.process.settings.values import Duration, KafkaProperties, TransactionTimeout
from spark_jobs.checkpoint.pins import FORMAT, HASH, JOB, MURMUR2, QUERY, SCHEMAS, TOPICS, Pins
from spark_jobs.operators.aggregation.config import Gapped
from spark_jobs.operators.aggregation.formats.avro import AvroCodec
from spark_jobs.operators.aggregation.formats.formats import codec
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.settings import (
    DelaySettings,
    PairingSettings,
    SessionsSettings,
    milliseconds,
)
from spark_jobs.query.settings import (
    DedupSettings,
    SourceSettings,
    SparkSettings,
    StateSettings,
    TopicEntries,
)
from spark_jobs.query.source import Reading
from spark_jobs.sink.kafka_options import leave_guarantees_alone
from spark_jobs.source import topics
from spark_jobs.stateful.outcome import OperatorTopics


class LatestSource(SourceSettings):
    """The topics to read; without a checkpoint, from now on."""

    starting_offsets: str = "latest"
    """Where a new checkpoint begins: `latest`, `earliest`, or Spark's JSON of offsets."""


class StatefulOutput(Settings):
    """The topics to write. A record never says where it goes; only this table does."""

    topic: TopicName
    """Topic for the operator's results."""

    late_topic: TopicName | None = None
    """Topic for records that came too late; without it, they are only counted."""

    dead_letter_topic: TopicName
    """Topic for records that the operator cannot use."""


class DelayOutput(StatefulOutput):
    """The topics to write, for records that were delayed."""

    back_to: TopicEntries = ()
    """
    Topics to which their own records go back, with patterns as in `source.topics`; all other
    records go to `topic`.
    """


class StatefulSettings(Settings):
    """One query: from topics, through a stateful operator, to a topic."""

    kafka: KafkaProperties
    """Any librdkafka property; `bootstrap.servers` at least."""

    source: SourceSettings

    operator: DelaySettings | PairingSettings | SessionsSettings | AggregationSettings
    """The operator; the same table that `dovecote replay` reads."""

    output: StatefulOutput

    state: StateSettings = StateSettings()

    spark: SparkSettings

    transaction_timeout: TransactionTimeout = timedelta(seconds=60)
    """How long the writing of one shuffle partition may take."""

    stall_after: Duration = timedelta(seconds=120)
    """/readyz says no if no batch was finished for this long, plus the trigger's pause."""

    behind_after: Duration = timedelta(minutes=5)
    """A job is `behind` while records wait and the newest that it read is older than this: see
    [states](states.md)."""

    http: HttpSettings = HttpSettings()

    _leave_guarantees_alone = field_validator("kafka")(leave_guarantees_alone)

    @field_validator("spark")
    @classmethod
    def _goes_on(cls, spark: SparkSettings) -> SparkSettings:
        if spark.trigger == "available_now":
            msg = (
                "trigger must be a duration: a job that waits for the clock never finishes reading"
            )
            raise ValueError(msg)
        return spark

    @model_validator(mode="after")
    def _no_loop(self) -> Self:
        written = self.topics_written()
        if loop := set(self.source.topics) & set(written):
            msg = f"topics {', '.join(sorted(loop))} are read and written: that would never end"
            raise ValueError(msg)
        if (problem := topics.read_by_pattern(written, self.source.topics)) is not None:
            raise ValueError(problem)
        if len(set(written)) != len(written):
            msg = "output, late and dead letter topics must be different ones"
            raise ValueError(msg)
        return self

    def topics_written(self) -> tuple[str, ...]:
        output = self.output
        found = (output.topic, output.late_topic, output.dead_letter_topic)
        return tuple(topic for topic in found if topic is not None)

    def reads(self) -> Reading:
        """Return the settings of the source."""
        return self

    def topics(self) -> OperatorTopics:
        """Return the topics of records."""
        output = self.output
        return OperatorTopics(
            output=output.topic, late=output.late_topic, dead_letter=output.dead_letter_topic
        )

    def buckets(self) -> int:
        """Return the number of buckets."""
        is_global = getattr(self.operator, "stream_time", "") == "global"
        return 1 if is_global else self.state.buckets

    def pins(self) -> Pins:
        """
        Return the settings with which a checkpoint of the job must go on.

        For the operator, these are the settings that decide the key and the bucket of a record's
        state.
        """
        operator = self.operator.model_dump(mode="json", include={"key", "stream_time", "sides"})
        sides = operator.pop("sides", None)
        if sides is not None:
            operator["sides"] = [side["topic"] for side in sides.values()]
        return {
            JOB: self.operator.type,
            QUERY: self.spark.query,
            TOPICS: sorted(self.source.topics),
            "state.buckets": self.buckets(),
            HASH: MURMUR2,
            "spark.shuffle_partitions": self.spark.shuffle_partitions,
            **{f"operator.{name}": value for name, value in operator.items()},
        }

    def marker_topic(self) -> str:
        """Return the topic of the query's markers."""
        return f"dovecote.markers.{self.spark.query}"

    def transactional_id(self) -> str:
        """Return the prefix of the transactional ids of the query's shuffle partitions."""
        return f"dovecote.{self.spark.query}"


class PairingJob(StatefulSettings):
    """`dovecote spark pairing`."""

    source: LatestSource
    operator: PairingSettings

    @model_validator(mode="after")
    def _reads_its_sides(self) -> Self:
        sides = {side.topic for side in self.operator.sides.values()}
        if patterns := topics.patterns(self.source.topics):
            msg = (
                f"source.topics has the pattern {patterns[0]!r}, and pairing takes none: name the "
                f"topics of the sides, {', '.join(sorted(sides))}"
            )
            raise ValueError(msg)
        if sides != set(self.source.topics):
            msg = f"source.topics must be those of the sides: {', '.join(sorted(sides))}"
            raise ValueError(msg)
        return self


class SessionsJob(StatefulSettings):
    """`dovecote spark sessions`."""

    operator: SessionsSettings


class DelayJob(StatefulSettings):
    """`dovecote spark delay`."""

    operator: DelaySettings
    output: DelayOutput

    @model_validator(mode="after")
    def _goes_back_elsewhere(self) -> Self:
        output = self.output
        aside = {"late": output.late_topic, "dead letter": output.dead_letter_topic}
        found = {
            **dict.fromkeys(topics.plain(self.source.topics), "source"),
            **{topic: which for which, topic in aside.items() if topic is not None},
        }
        for topic, which in found.items():
            entry = topics.entry_of(topic, output.back_to)
            if entry is not None and entry != topic:
                msg = (
                    f"the {which} topic {topic!r} is among those to go back to, by the pattern "
                    f'{entry!r}: add "!{topic}" to output.back_to'
                )
                raise ValueError(msg)
        return self

    def topics_written(self) -> tuple[str, ...]:
        back_to = topics.plain(self.output.back_to)
        back = (topic for topic in back_to if topic != self.output.topic)
        return (*super().topics_written(), *back)

    def topics(self) -> OperatorTopics:
        return replace(
            super().topics(),
            back_to=frozenset(self.output.back_to),
            read=frozenset(self.source.topics),
        )


class AggregationJob(StatefulSettings):
    """A step of `dovecote spark aggregate`."""

    operator: AggregationSettings

    reading: KafkaProperties
    """The connection of the source, which may be another cluster."""

    def topics_written(self) -> tuple[str, ...]:
        output = self.output
        aside = (output.late_topic, output.dead_letter_topic)
        return (*self.operator.step.topics(), *(topic for topic in aside if topic is not None))

    def reads(self) -> Reading:
        return self.model_copy(update={"kafka": self.reading})

    def pins(self) -> Pins:
        step = self.operator.step
        # A window that ends after a gap has no time of day to wait for, and the other way round.
        ends = "gap" if isinstance(step.trigger, Gapped) else step.trigger.type
        key = step.key.model_dump(mode="json", exclude={"source", "path"})
        # A window whose script folds has none of the events that another would read.
        kept = "folded" if self.operator.folds else "events"
        pins = {**super().pins(), "step.key": key, "step.trigger": ends, "step.dsl": kept}
        # Open windows hold records as they came, and firing reads them.
        read = step.format.input.model_dump(mode="json", exclude={"schema_"})
        found = codec(step.format.input, self.operator.input_schemas)
        schemas = found.fingerprints() if isinstance(found, AvroCodec) else {}
        return {**pins, FORMAT: read, SCHEMAS: schemas}


JOBS: dict[str, type[StatefulSettings]] = {
    "delay": DelayJob,
    "pairing": PairingJob,
    "sessions": SessionsJob,
}
"""The stateful jobs, by name."""


def recirculation(settings: DedupSettings) -> DelayJob:
    """Return the job that puts back the records on the retry topic of `settings`."""
    loop, spark, source = settings.recirculation, settings.spark, settings.source
    # Properties come as copies: checked once more, a secret would count as written in the file.
    made = DelayJob(
        kafka={"bootstrap.servers": settings.kafka["bootstrap.servers"]},
        source=SourceSettings(
            topics=(settings.output.retry_topic,),
            max_offsets_per_trigger=source.max_offsets_per_trigger,
            max_bytes_per_trigger=source.max_bytes_per_trigger,
            skip=source.skip,
            expired=source.expired,
        ).model_copy(update={"options": source.options}),
        operator=DelaySettings(),
        output=DelayOutput(
            topic=topics.plain(source.topics)[0],
            back_to=source.topics,
            dead_letter_topic=settings.output.dead_letter_topic,
        ),
        state=settings.state,
        spark=spark.model_copy(
            update={
                "query": f"{spark.query}.delay",
                "checkpoint": loop.checkpoint or f"{spark.checkpoint.rstrip('/')}.delay",
                "trigger": f"{milliseconds(loop.trigger)}ms",
            }
        ),
        transaction_timeout=settings.transaction_timeout,
    )
    return made.model_copy(update={"kafka": settings.kafka})
