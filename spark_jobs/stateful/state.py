"""Look into the state of a stateful job, with Spark's own reader of state stores."""

from collections.abc import Iterator
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from outbox.errors import BadSettings
from spark_jobs.errors import QueryFailed
from spark_jobs.operators import contents, extent
from spark_jobs.operators.contents import Entry
from spark_jobs.operators.encoding import decode
from spark_jobs.operators.table import operator
from spark_jobs.query.batch import Alarms
from spark_jobs.query.session import STATE_STORE
from spark_jobs.stateful.host import STATE_NAME
from spark_jobs.stateful.settings import StatefulSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketState:
    """The state of one bucket after the newest finished batch."""

    bucket: int
    keys: int
    open: int
    size: int
    """In bytes."""
    entries: list[Entry]
    """One for each key, or for each waiting record."""


def read(spark: SparkSession, settings: StatefulSettings) -> Iterator[BucketState]:
    """
    Yield the state of the job's buckets; this changes nothing, and the job may run meanwhile.

    Raises:
        BadSettings: its aggregate does not exist, or there is no state yet.
    """
    used = operator(settings.operator)
    for row in _rows(spark, settings, "state"):
        data = bytes(row["state"])
        state = decode(used, data)
        yield BucketState(
            bucket=row["bucket"],
            keys=extent.keys(state),
            open=extent.opened(state),
            size=len(data),
            entries=list(contents.entries(state, settings.operator)),
        )


def alarms(spark: SparkSession, settings: StatefulSettings) -> Alarms:
    """
    Return when Spark will call each bucket, after the newest finished batch.

    Raises:
        BadSettings: there is no state yet.
        QueryFailed: Spark cannot read it.
    """
    return {str(row["bucket"]): row["alarm"] for row in _rows(spark, settings, "alarm")}


def _rows(spark: SparkSession, settings: StatefulSettings, value: str) -> Iterator[Row]:
    """Yield each bucket with one of the values that Spark keeps for it."""
    for name, each in STATE_STORE.items():
        spark.conf.set(name, each)
    _ = spark.streams  # starts the driver's server for Spark's stores, as a query does
    try:
        yield from (
            spark.read.format("statestore")
            .option("stateVarName", STATE_NAME)
            .load(settings.spark.checkpoint)
            .selectExpr("key.bucket AS bucket", f"value.{value} AS {value}")
            .orderBy("bucket")
            .toLocalIterator()
        )
    except PySparkException as error:
        if error.getCondition() in _NOTHING_YET:
            msg = (
                f"{settings.spark.checkpoint} holds no state yet: the job has finished no batch "
                "there, or `spark.checkpoint` names another place"
            )
            raise BadSettings(msg) from error
        raise _unreadable(settings, str(error)) from error
    except Py4JJavaError as error:
        raise _unreadable(settings, str(error.java_exception.toString())) from error
    except (Py4JError, OSError, EOFError) as error:  # errors between Python and Spark
        raise _unreadable(settings, str(error) or type(error).__name__) from error


def _unreadable(settings: StatefulSettings, reason: str) -> QueryFailed:
    msg = (
        f"Spark cannot read the state in {settings.spark.checkpoint}: {reason.splitlines()[0]} "
        "(a checkpoint with state cannot be moved: it names its files by their whole paths)"
    )
    return QueryFailed(msg)


_NOTHING_YET = {
    "STDS_OFFSET_LOG_UNAVAILABLE",
    "STDS_COMMITTED_BATCH_UNAVAILABLE",
    "STDS_NO_PARTITION_DISCOVERED_IN_STATE_STORE",
    "STDS_FAILED_TO_READ_OPERATOR_METADATA",
}
"""Spark's names of the parts that are missing until the first batch is done."""
