"""The source of a job's rows, and the start of its batches."""

from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_jobs.query.settings import SourceSettings, SparkSettings
from spark_jobs.rows import columns
from spark_jobs.sink import kafka_options


class Reading(Protocol):
    """The settings of a job that say what it reads."""

    @property
    def kafka(self) -> dict[str, str]: ...
    @property
    def source(self) -> SourceSettings: ...


def rows(settings: Reading, spark: SparkSession) -> DataFrame:
    """Return the records of the source's topics as they come, headers included."""
    source = settings.source
    options = {
        **kafka_options.source(settings.kafka, source.options),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "subscribe": ",".join(source.topics),
        "startingOffsets": source.starting_offsets,
        "maxOffsetsPerTrigger": str(source.max_offsets_per_trigger),
    }
    found = spark.readStream.format("kafka").options(**options).load()
    # Spark asks for the size of its Arrow batch before each row, which takes a pass over all of
    # its null lists.
    none = F.array().cast(found.schema["headers"].dataType)
    return found.withColumn("headers", F.coalesce("headers", none))


def timed_rows(settings: Reading, spark: SparkSession) -> DataFrame:
    """
    Return the records, each with the clock of its micro-batch.

    Spark records that clock before the batch begins, so a batch that is run again has the same
    clock.
    """
    return rows(settings, spark).withColumn(columns.NOW, clock())


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
