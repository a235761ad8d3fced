"""The deduplicating job: Kafka, one policy per key and batch, Kafka, each record once."""

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.checkpoint.pinned import pin
from spark_jobs.checkpoint.runs import Runs, noted
from spark_jobs.operators.settings import milliseconds
from spark_jobs.policy.evaluation import load
from spark_jobs.policy.grouping import Choice
from spark_jobs.policy.lanes import Lanes
from spark_jobs.policy.stage import StageConfig
from spark_jobs.query import source
from spark_jobs.query.batch import Stage
from spark_jobs.query.query import Query, Show
from spark_jobs.query.session import ADMIN_SECONDS, STATE_STORE
from spark_jobs.query.settings import DedupSettings
from spark_jobs.query.topics import require_topics, writing
from spark_jobs.query.watching import watching
from spark_jobs.rows.buckets import names
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.sink import SinkConfig
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.log import BatchLog
from spark_jobs.source.offsets import Offsets

if TYPE_CHECKING:
    from spark_jobs.policy.remembering import RememberConfig


def run(
    settings: DedupSettings,
    spark: SparkSession,
    *,
    show: Show,
    stop: threading.Event,
    adopt: bool = False,
) -> None:
    """
    Run the query until it ends or `stop` is set; the batch in progress is always finished.

    Raises:
        BadSettings: the filter, the handler or a topic is not valid.
    """
    with noted(spark, settings.spark.checkpoint) as runs:
        _run(settings, spark, runs, show=show, stop=stop, adopt=adopt)


def _run(
    settings: DedupSettings,
    spark: SparkSession,
    runs: Runs,
    *,
    show: Show,
    stop: threading.Event,
    adopt: bool,
) -> None:
    load(settings.operator)  # fails here, not on an executor
    require_topics(settings)
    began = pin(
        spark,
        settings.spark.checkpoint,
        settings.pins(),
        begin=lambda: source.begin(settings),
        adopt=adopt,
        has_state=settings.operator.remember is not None,
    )
    markers = MarkerTopic(settings.marker_topic(), settings.kafka, timeout=ADMIN_SECONDS)
    markers.ensure(settings.spark.shuffle_partitions)
    with (
        source.sized(source.config(settings)) as (reads, sizes),
        watching(settings, runs=runs) as watch,
    ):
        rows, stage = _stage(settings, reads, spark, began)
        query = Query(
            spark,
            settings.spark.query,
            stage,
            show=show,
            watch=watch,
            sizes=sizes,
            log=BatchLog(spark, settings.spark.checkpoint, began),
            latest=source.latest(reads),
            adopt=adopt,
        )
        query.run(source.writer(settings.spark, rows), stop)


def _stage(
    settings: DedupSettings, reads: SourceConfig, spark: SparkSession, began: Offsets
) -> tuple[DataFrame, Stage]:
    """Return the source of the batches, and the stage for them."""
    config = stage_config(settings.model_copy(update={"kafka": writing(settings)}))
    if settings.operator.remember is not None:
        # Here, for a job that remembers nothing needs nothing of what this imports.
        from spark_jobs.policy.remembering import RememberingStage, pack, passed

        for name, value in STATE_STORE.items():
            spark.conf.set(name, value)
        memory = _memory(settings, settings.operator.remember)
        rows = source.packets(spark, reads, began, pack(memory))
        return passed(rows, memory), RememberingStage(config=config)
    lanes = Lanes(
        spark,
        config,
        reads,
        log=BatchLog(spark, settings.spark.checkpoint, began),
        choice=Choice(settings.spark.grouping, settings.spark.shuffle_partitions),
    )
    return source.planned(spark, reads, began), lanes


def _memory(settings: DedupSettings, within: timedelta) -> "RememberConfig":
    from spark_jobs.policy.remembering import RememberConfig

    return RememberConfig(
        query=settings.spark.query,
        within=milliseconds(within),
        buckets=names(settings.state.buckets, settings.spark.shuffle_partitions),
        max_bucket_bytes=settings.state.max_bucket_bytes,
    )


def stage_config(settings: DedupSettings) -> StageConfig:
    """Return the configuration for the executors."""
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
