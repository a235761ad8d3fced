"""The last stage of a deduplicating job that remembers: a policy over rows that are no copies."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_jobs.policy.stage import StageConfig, Task
from spark_jobs.query.batch import SCHEMA as REPORT
from spark_jobs.query.batch import Batch, Report, partition_id
from spark_jobs.rows import columns
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.sink.markers import Counts

COPY = "duplicate"
_ORDER = [(name, "ascending") for name in ("key", "topic", "partition", "offset")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberingStage(StageConfig):
    """Like the stage of a job that remembers nothing, but after its memory."""

    def run(self, rows: DataFrame, batch: Batch) -> list[Report]:
        """
        Handle and write the rows that pass; no shuffle is needed, because a key has one bucket.
        """
        tasks = rows.mapInArrow(RememberingTask(self, batch), REPORT)
        return [Report.decode(row["report"]) for row in tasks.collect()]


class RememberingTask(Task):
    """
    Handles and writes the rows that the buckets of one shuffle partition let pass.

    It runs in the task that has used their memories. If the task ends before Spark has stored
    them, the batch is run again with the old ones, for which the same records are copies.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            found = [row for batch in batches for row in batch.to_pylist()]
            if not found:
                return
            copies = sum(row["copies"] for row in found)
            skipped = Counts(rows=copies, skipped={COPY: copies} if copies else {})
            rows = columns.read(_unpacked(row["packet"] for row in found))
            if rows is None:
                report = Report(partition=partition_id(), counts=skipped)
            else:
                now = found[0][columns.NOW]
                report = self._report(replace(rows, now=now), partition_id(), skipped)
            report = replace(
                report,
                newest=max(row["newest"] for row in found),
                buckets={str(row["bucket"]): [row["known"], 0, row["bytes"]] for row in found},
            )
        yield pa.RecordBatch.from_pydict({"report": [report.encode()]})


def _unpacked(found: Iterator[bytes]) -> list[pa.RecordBatch]:
    """Return the rows of all packets, with each key's rows together and in order."""
    tables = [pa.ipc.open_stream(packet).read_all() for packet in found]
    batches: list[pa.RecordBatch] = pa.concat_tables(tables).sort_by(_ORDER).to_batches()
    return batches
