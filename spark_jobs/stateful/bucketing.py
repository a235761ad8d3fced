"""The bucket of each row of an aggregation: rows with the same key share a bucket."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark
from pyspark.sql.types import IntegerType, StructField, StructType

from outbox.envelope import Record
from spark_jobs.operators.aggregation.config import HashKey, HeadersKey, Step
from spark_jobs.operators.aggregation.guard import Guarded
from spark_jobs.operators.aggregation.keys import SEPARATOR
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.rows.packets import BUCKET, COLUMNS

_RECORD = ("topic", "partition", "offset", "key", "value", "headers")


def key(step: Step) -> Column:
    """Return the column by which rows are grouped if no script does it."""
    if isinstance(step.key, HashKey):
        return F.col("value")  # equal bodies have equal hashes
    if isinstance(step.key, HeadersKey):
        return F.concat_ws(SEPARATOR, *map(_header, step.key.keys))
    return F.col("key")


def bucketed(rows: DataFrame, settings: AggregationSettings, buckets: Sequence[int]) -> DataFrame:
    """Return `rows` with the bucket that the key script chooses for each."""
    rows = rows.select(*COLUMNS)
    schema = StructType([*rows.schema.fields, StructField(BUCKET, IntegerType())])
    return rows.mapInArrow(ByScript(settings, buckets), schema)


@dataclass(frozen=True, slots=True)
class ByScript:
    """Calls the key script, on an executor."""

    settings: AggregationSettings
    buckets: Sequence[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            operator = Guarded(self.settings)
            for batch in batches:
                keys = operator.keys(_records(batch))
                column = pa.array([self._bucket(each) for each in keys], pa.int32())
                yield batch.append_column(BUCKET, column)

    def _bucket(self, found: bytes | None) -> int:
        # A record without a key goes anywhere; the error is raised again there.
        return self.buckets[crc32(found or b"") % len(self.buckets)]


def _header(name: str) -> Column:
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def _records(batch: pa.RecordBatch) -> list[Record]:
    columns = [batch.column(name).to_pylist() for name in _RECORD]
    return [
        Record(
            topic,
            partition,
            offset,
            0,
            key_,
            value,
            [(each["key"], each["value"]) for each in headers or ()],
        )
        for topic, partition, offset, key_, value, headers in zip(*columns, strict=True)
    ]
