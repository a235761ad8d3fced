"""Look into the state of a stateful job, with Spark's own reader of state stores."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from outbox.errors import BadSettings
from spark_jobs.checkpoint.damage import numbered
from spark_jobs.checkpoint.files import SparkFiles
from spark_jobs.errors import QueryFailed
from spark_jobs.operators import contents, extent
from spark_jobs.operators.contents import Entry
from spark_jobs.operators.table import operator
from spark_jobs.query.batch import Alarms
from spark_jobs.query.session import STATE_STORE
from spark_jobs.stateful.codec import OperatorCodec
from spark_jobs.stateful.host import STATE_NAME
from spark_jobs.stateful.parts import PARTS_NAME, Head, checked, restored
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
        StateDamaged: a part of a state is missing, or is another.
        BadState: a state has an unknown format.
    """
    codec = OperatorCodec(operator(settings.operator))
    # The job may finish a batch meanwhile, and then the parts would be others.
    done = numbered(SparkFiles(spark, settings.spark.checkpoint).names("commits"))
    batch = max(done, default=None)
    parts = groupby(_parts(spark, settings, batch), itemgetter("bucket"))
    for row in _rows(spark, settings, "state", batch):
        data, bucket = bytes(row["state"]), row["bucket"]
        head = Head.decode(data) if codec.has_parts else None
        if head is None:
            state, size = codec.decode(data), len(data)
        else:
            state, size = _in_parts(codec, bucket, head, parts), head.size
        yield BucketState(
            bucket=bucket,
            keys=extent.keys(state),
            open=extent.opened(state),
            size=size,
            entries=list(contents.entries(state, settings.operator)),
        )


_Parts: TypeAlias = Iterator[tuple[int, Iterator[Row]]]
"""The parts by bucket, both in order; Spark is asked when the first is."""


def _in_parts(codec: OperatorCodec, bucket: int, head: Head, parts: _Parts) -> Any:  # noqa: ANN401  # the operator's own
    """
    Return the state of a bucket whose parts come next.

    Raises:
        StateDamaged: one of them is missing, or is another.
    """
    found = next((of for number, of in parts if number >= bucket), iter(()))
    held = {row["number"]: bytes(row["part"]) for row in found if row["bucket"] == bucket}
    state = None
    for number in range(len(head.sizes)):
        state = restored(codec, state, checked(bucket, head, number, held.get(number)))
    return state


def alarms(spark: SparkSession, settings: StatefulSettings) -> Alarms:
    """
    Return when Spark will call each bucket, after the newest finished batch.

    Raises:
        BadSettings: there is no state yet.
        QueryFailed: Spark cannot read it.
    """
    return {str(row["bucket"]): row["alarm"] for row in _rows(spark, settings, "alarm")}


def _rows(
    spark: SparkSession, settings: StatefulSettings, value: str, batch: int | None = None
) -> Iterator[Row]:
    """Yield each bucket with one of the values that Spark keeps for it."""
    columns = {"bucket": "key.bucket", value: f"value.{value}"}
    return _stored(spark, settings, STATE_NAME, columns, batch=batch)


def _parts(spark: SparkSession, settings: StatefulSettings, batch: int | None) -> Iterator[Row]:
    """Yield the parts of large states, in their order."""
    number, part = "user_map_key.number", "user_map_value.part"
    columns = {"bucket": "key.bucket", "number": number, "part": part}
    return _stored(spark, settings, PARTS_NAME, columns, batch=batch)


def _stored(
    spark: SparkSession,
    settings: StatefulSettings,
    name: str,
    columns: Mapping[str, str],
    *,
    batch: int | None,
) -> Iterator[Row]:
    """
    Yield what Spark keeps under a name after a batch, in the order of all columns but the last.

    None: after the newest one.
    """
    for option, each in STATE_STORE.items():
        spark.conf.set(option, each)
    _ = spark.streams  # starts the driver's server for Spark's stores, as a query does
    try:
        reader = spark.read.format("statestore").option("stateVarName", name)
        if batch is not None:
            reader = reader.option("batchId", batch)
        yield from (
            reader.load(settings.spark.checkpoint)
            .selectExpr(*(f"{of} AS {column}" for column, of in columns.items()))
            .orderBy(*[*columns][:-1])
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
