"""Run a stateful job: Kafka, one operator, Kafka, each result once."""

import threading
from contextlib import closing
from functools import partial

from pyspark.sql import SparkSession

from outbox.tracing.gate import is_on
from spark_jobs.checkpoint.pinned import pin
from spark_jobs.checkpoint.runs import Runs, noted
from spark_jobs.operators.table import operator
from spark_jobs.query import source
from spark_jobs.query.query import Query, Show
from spark_jobs.query.resting import Arrivals, Rest
from spark_jobs.query.session import ADMIN_SECONDS, STATE_STORE
from spark_jobs.query.topics import require_topics, writing
from spark_jobs.query.watching import watching
from spark_jobs.rows.buckets import names
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.sink import SinkConfig
from spark_jobs.source.log import BatchLog
from spark_jobs.stateful.host import StatefulConfig, outcomes, pack
from spark_jobs.stateful.settings import StatefulSettings
from spark_jobs.stateful.stage import WriteConfig
from spark_jobs.stateful.state import alarms as stored_alarms


def run(
    settings: StatefulSettings,
    spark: SparkSession,
    *,
    show: Show,
    stop: threading.Event,
    adopt: bool = False,
) -> None:
    """
    Run the query until `stop` is set; the batch in progress is always finished.

    Raises:
        BadSettings: the aggregate, a topic or the checkpoint is not valid.
    """
    with noted(spark, settings.spark.checkpoint) as runs:
        _run(settings, spark, runs, show=show, stop=stop, adopt=adopt)


def _run(
    settings: StatefulSettings,
    spark: SparkSession,
    runs: Runs,
    *,
    show: Show,
    stop: threading.Event,
    adopt: bool,
) -> None:
    operator(settings.operator)  # fails here, not on an executor
    require_topics(settings)
    for name, value in STATE_STORE.items():
        spark.conf.set(name, value)
    reads = settings.reads()
    began = pin(
        spark,
        settings.spark.checkpoint,
        settings.pins(),
        begin=lambda: source.begin(reads),
        adopt=adopt,
        has_state=True,
    )
    markers = MarkerTopic(settings.marker_topic(), settings.kafka, timeout=ADMIN_SECONDS)
    markers.ensure(settings.spark.shuffle_partitions)
    config = stateful_config(settings)
    rest = Rest(
        settings.spark.pause(),
        has_come=Arrivals(reads.kafka).has_after,
        stored=partial(stored_alarms, spark, settings),
    )
    with (
        source.sized(source.config(reads)) as (read, sizes),
        watching(settings, runs=runs, reads=reads) as watch,
        closing(rest),
    ):
        packed = source.packets(spark, read, began, pack(config))
        watch.metrics.limit(settings.state.max_bucket_bytes)
        query = Query(
            spark,
            settings.spark.query,
            write_config(settings.model_copy(update={"kafka": writing(settings)})),
            show=show,
            watch=watch,
            rest=rest,
            sizes=sizes,
            log=BatchLog(spark, settings.spark.checkpoint, began),
            latest=source.latest(read),
            adopt=adopt,
        )
        query.run(source.writer(settings.spark, outcomes(packed, config)), stop)


def stateful_config(settings: StatefulSettings) -> StatefulConfig:
    """Return the executors' configuration for stepping the operator."""
    return StatefulConfig(
        operator=settings.operator,
        topics=settings.topics(),
        query=settings.spark.query,
        buckets=names(settings.buckets(), settings.spark.shuffle_partitions),
        max_bucket_bytes=settings.state.max_bucket_bytes,
        traced=is_on(),
    )


def write_config(settings: StatefulSettings) -> WriteConfig:
    """Return the executors' configuration for writing."""
    return WriteConfig(
        topics=settings.topics(),
        sink=SinkConfig(
            kafka=settings.kafka,
            marker_topic=settings.marker_topic(),
            transactional_id=settings.transactional_id(),
            timeout=settings.transaction_timeout.total_seconds(),
        ),
        partitions=settings.spark.shuffle_partitions,
    )
