"""The sources of a query's batches in Spark: they plan offsets, and tasks read their ranges."""

import base64
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_jobs.errors import SourceChanged
from spark_jobs.rows import packets
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.rows.packets import Pack
from spark_jobs.rows.records import NO_IDS, TopicIds
from spark_jobs.source import offsets
from spark_jobs.source.cluster import Cluster
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.fetching import fetch
from spark_jobs.source.offsets import Offsets, Range
from spark_jobs.source.sizes import Sizes

NAME, PACKED = "dovecote", "dovecote_packed"
CONFIG, BEGIN = "kafka", "begin"
"""Options: the `SourceConfig`, and the offsets at which a new query begins."""
PACK, TASKS = "pack", "tasks"
"""Options of `Packed`: how to pack, as `encode` has it, and how many tasks may read."""

# A broker that was the leader may answer with an older end for so long.
_CUT_OFF_SECONDS = 30.0
# A clock that is corrected by less has not been wrong.
_CLOCK_SECONDS = 1.0


class Planned(DataSource):
    """
    Plans what each batch reads, and yields nothing: the batch's own job reads the ranges.

    Spark keeps the plan of each batch in its log of offsets before the batch begins.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "planned binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's name
        return Planner(self.options)


class Packed(DataSource):
    """
    Plans what each batch reads, and yields it in packets.

    For a batch with Spark's own state, whose rows must come from Spark's source.
    """

    @classmethod
    def name(cls) -> str:
        return PACKED

    def schema(self) -> str:
        return packets.SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's name
        return PackingPlanner(self.options)


def encode(pack: Pack) -> str:
    """Return the text of an option, from which `PackingPlanner` makes `pack` again."""
    return base64.b64encode(pickle.dumps(pack)).decode()


class Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    Answers Spark's questions about offsets, in a process of the driver.

    Spark pickles it together with `read`; so it has no client before the first question.
    """

    def __init__(self, options: Any) -> None:  # noqa: ANN401  # Spark's mapping
        self._config = SourceConfig.decode(options[CONFIG])
        self._begin = Offsets.decode(options[BEGIN])
        self._cluster = Cluster(self._config.kafka)
        self._ends_now = False
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._cut_off_since: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """
        Return where the query begins; decided once, before its start.

        Spark asks more than once until a batch is done, and records that came in between would be
        lost with `latest`.
        """
        return self._begin.fields()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # as above
        return ReadAllAvailable() if self._config.most is None else ReadMaxRows(self._config.most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # as above
        self._ends_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # as above
        return None if self._latest is None else self._latest.fields()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # as above
        """Return the end of the next batch, which begins at `start`."""
        # With --adopt, the settings may have fewer topics than the query has read.
        entries = self._config.topics
        read = Offsets.of(start).of_topics(entries)
        latest = self._target or self._cluster.latest(entries, known=read.ends)
        if self._ends_now:  # the query ends where the topics end at its first question
            self._target = latest
        offsets.require_same(read, latest, entries)
        self._require_all(read, latest)
        self._latest = latest
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._config.most_bytes is not None:
            fit = Sizes(self._config.sizes).records(self._config.most_bytes)
            most = fit if most is None else min(most, fit)
        return offsets.limited(read, latest, self._beginnings(read, latest), most).fields()

    def partitions(
        self,
        start: dict[str, Any],  # noqa: ARG002  # Spark's name
        end: dict[str, Any],
    ) -> Sequence[InputPartition]:
        self._require_planned(end)
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # as above
        yield from ()

    def _require_planned(self, end: dict[str, Any]) -> None:
        """
        Make sure that a batch which an earlier run has planned reads the topics of its plan.

        Raises:
            SourceChanged: a topic is gone or was made anew since.
        """
        if self._latest is None:  # no batch was planned in this run yet
            entries = self._config.topics
            planned = Offsets.of(end).of_topics(entries)
            found = self._cluster.latest(entries, known=planned.ends)
            offsets.require_same(planned, found, entries)

    def _beginnings(self, read: Offsets, latest: Offsets) -> Offsets:
        """Return where new partitions begin; asks only if there are any."""
        has_new = any(
            partitions.keys() - read.ends.get(topic, {}).keys()
            for topic, partitions in latest.ends.items()
        )
        if not has_new:
            return Offsets({})
        return self._cluster.earliest(self._config.topics, known=read.ends)

    def _require_all(self, read: Offsets, latest: Offsets) -> None:
        """
        Make sure that the topics still hold what was read last.

        Raises:
            SourceChanged: for half a minute, a partition has ended before what was read of it.
        """
        lost = offsets.cut_off(read, latest)
        if lost is None:
            self._cut_off_since = None
            return
        now = time.monotonic()
        if self._cut_off_since is None:
            self._cut_off_since = now
        if now - self._cut_off_since > _CUT_OFF_SECONDS:
            msg = (
                f"{lost.topic}/{lost.partition} ends at offset {lost.start}, and the job has read "
                f"up to {lost.end}: the cluster has lost records (an unclean leader election?). "
                "New records at these offsets would never be read. Give the job a new "
                "spark.checkpoint with source.starting_offsets and run once with --adopt"
            )
            raise SourceChanged(msg)


class Share(InputPartition):
    """The ranges that one task reads, the topics' ids, and whether it wakes all buckets."""

    def __init__(self, ranges: Sequence[Range], ids: TopicIds, *, wakes: bool = False) -> None:
        self.value, self.ids, self.wakes = ranges, ids, wakes


class PackingPlanner(Planner):
    """
    The planner whose tasks also read, on the executors.

    The first batch of a run steps every bucket, so that changed settings count at once, and what
    became due meanwhile is done. So does a batch after the clock has gone back.
    """

    def __init__(self, options: Any) -> None:  # noqa: ANN401  # Spark's mapping
        super().__init__(options)
        self._tasks = int(options[TASKS])
        self._pack: Pack = pickle.loads(base64.b64decode(options[PACK]))  # noqa: S301  # our own
        self._woken: int | None = None
        self._asked_at = 0.0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        end = Offsets.of(super().latestOffset(start, limit))
        if not self._pack.wakes:
            return end.fields()
        now = time.time()
        if self._woken is None or now < self._asked_at - _CLOCK_SECONDS:
            self._woken = Offsets.of(start).woken + 1
        self._asked_at = now
        return replace(end, woken=self._woken).fields()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._require_planned(end)
        first, last = Offsets.of(start), Offsets.of(end)
        shares = offsets.shared_out(offsets.ranges(first, last), self._tasks) or [[]]
        is_woken, ids = first.woken != last.woken, last.topic_ids()
        return [Share(each, ids, wakes=is_woken and not n) for n, each in enumerate(shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wakes = isinstance(partition, Share) and partition.wakes
        with rarely_collecting():
            ids = partition.ids if isinstance(partition, Share) else NO_IDS
            yield from self._pack(fetch(partition.value, self._config), ids, wakes=wakes)
