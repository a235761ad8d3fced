"""The source of a job's batches, and their start."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_jobs.query.settings import SourceSettings, SparkSettings
from spark_jobs.query.topics import require_matches
from spark_jobs.rows.packets import Pack
from spark_jobs.sink import group
from spark_jobs.source import offsets
from spark_jobs.source.cluster import Cluster
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.offsets import Offsets
from spark_jobs.source.sizes import Sizes, shared
from spark_jobs.source.stream import (
    BEGIN,
    CONFIG,
    NAME,
    PACK,
    PACKED,
    TASKS,
    Packed,
    Planned,
    encode,
)


class Reading(Protocol):
    """The settings of a job that say what it reads."""

    @property
    def kafka(self) -> dict[str, str]: ...
    @property
    def source(self) -> SourceSettings: ...
    @property
    def spark(self) -> SparkSettings: ...


def config(settings: Reading) -> SourceConfig:
    """Return what planner and tasks need to know."""
    source = settings.source
    return SourceConfig(
        kafka=settings.kafka,
        options=source.options,
        group=group.name(settings.spark.query),
        topics=tuple(sorted(source.topics)),
        most=source.max_offsets_per_trigger,
        most_bytes=source.max_bytes_per_trigger,
        expired=source.expired,
        skip=source.skip,
    )


@contextmanager
def sized(found: SourceConfig) -> Iterator[tuple[SourceConfig, Sizes]]:
    """Yield `found` with a place for the sizes of records, and the sizes."""
    with shared() as file:
        yield replace(found, sizes=file), Sizes(file)


def begin(settings: Reading) -> Offsets:
    """
    Return where a new query begins, by the settings and by what the topics hold now.

    Raises:
        BadSettings: a pattern takes in no topic.
        SourceChanged: a topic, or a partition that the settings name, does not exist.
        KafkaUnavailable: no broker answers.
    """
    cluster, topics = Cluster(settings.kafka), settings.source.topics
    require_matches(settings.kafka, topics)
    wanted = settings.source.starting_offsets
    return offsets.begin(wanted, cluster.earliest(topics), cluster.latest(topics))


def latest(found: SourceConfig) -> Callable[[Collection[str]], Mapping[str, Any]]:
    """Return what asks where topics end; it gets those that were read."""
    cluster = Cluster(found.kafka)
    return lambda read: cluster.latest(found.topics, known=read).fields()


def planned(spark: SparkSession, found: SourceConfig, start: Offsets) -> DataFrame:
    """Return the source that plans batches; a new query begins at `start`."""
    spark.dataSource.register(Planned)
    options = {CONFIG: found.encode(), BEGIN: start.encode()}
    return spark.readStream.format(NAME).options(**options).load()


def packets(spark: SparkSession, found: SourceConfig, start: Offsets, pack: Pack) -> DataFrame:
    """Return the source whose tasks read and pack; a new query begins at `start`."""
    spark.dataSource.register(Packed)
    shuffled = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    tasks = max(shuffled, spark.sparkContext.defaultParallelism)
    options = {CONFIG: found.encode(), BEGIN: start.encode()}
    options |= {PACK: encode(pack), TASKS: str(tasks)}
    return spark.readStream.format(PACKED).options(**options).load()


def clock() -> Column:
    """Return Spark's clock of the micro-batch, in milliseconds."""
    return F.unix_millis(F.current_timestamp())


def writer(settings: SparkSettings, frame: DataFrame) -> DataStreamWriter:
    """Return a writer that starts a query over `frame`, with its checkpoint and its trigger."""
    starting = frame.writeStream.option("checkpointLocation", settings.checkpoint)
    if settings.trigger == "available_now":
        return starting.trigger(availableNow=True)
    milliseconds = round(settings.pause().total_seconds() * 1000)
    return starting.trigger(processingTime=f"{milliseconds} milliseconds")
