"""The deduplicating job: Kafka, one policy per key and batch, Kafka, each record once."""

import threading

from pyspark.sql import SparkSession

from spark_jobs import source
from spark_jobs.check import require_topics
from spark_jobs.evaluation import load
from spark_jobs.marker_topic import MarkerTopic
from spark_jobs.query import Query, Show
from spark_jobs.settings import DedupSettings
from spark_jobs.sink import SinkConfig
from spark_jobs.source import writer
from spark_jobs.stage import StageConfig

ADMIN_SECONDS = 30.0


def run(
    settings: DedupSettings,
    spark: SparkSession,
    *,
    show: Show,
    stop: threading.Event,
    adopt: bool = False,
) -> None:
    """
    Run the query until it ends or `stop` is set; the batch under way is always finished.

    Raises:
        BadSettings: the filter, the handler or a topic is not as it must be.
        JobError: a batch could not be written, its marker is not ours, or Spark gave up.
    """
    load(settings.operator)  # fails here, not on an executor
    require_topics(settings)
    markers = MarkerTopic(settings.marker_topic(), settings.kafka, timeout=ADMIN_SECONDS)
    markers.ensure(settings.spark.shuffle_partitions)
    query = Query(spark, settings.spark.query, stage_config(settings), show=show, adopt=adopt)
    query.run(writer(settings.spark, source.rows(settings, spark)), stop)


def stage_config(settings: DedupSettings) -> StageConfig:
    """Return what the executors need to know."""
    return StageConfig(
        operator=settings.operator,
        topics=settings.topics(),
        backoff=settings.backoff(),
        sink=SinkConfig(
            kafka=settings.kafka,
            marker_topic=settings.marker_topic(),
            transactional_id=settings.transactional_id(),
            timeout=settings.transaction_timeout.total_seconds(),
        ),
        partitions=settings.spark.shuffle_partitions,
    )
