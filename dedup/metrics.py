"""The metrics that a consumer exposes."""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

RESULTS = ("handled", "skipped", "retry", "dead_letter", "parked")
"""The results that a record may have."""


class Metrics:
    """A registry of its own, so that two consumers in one process (tests) keep apart."""

    def __init__(self, group: str) -> None:
        self.registry = CollectorRegistry()
        self._group = group
        self._records = self._counter(
            "records_total",
            "Records completed, by what became of them: handled, skipped, retry, dead_letter,"
            " parked.",
            "result",
        )
        self._skipped = self._counter(
            "records_skipped_total",
            "Records skipped, by reason: filtered, duplicate, superseded, handler.",
            "reason",
        )
        self._known = self._counter(
            "records_remembered_total",
            "Records polled again that were completed before: not handled again.",
        )
        self._expired = self._counter(
            "expired_total", "Offsets that a topic had deleted before they were read.", "topic"
        )
        self.expired_in_all = 0
        self.handled_in_all = self.failed_in_all = 0
        """Records that were handled or skipped, and attempts that failed."""
        self._stepped_over = self._counter(
            "stepped_over_total",
            "Offsets that could not be read and were stepped over, as an operator noted.",
            "topic",
        )
        self._stuck = self._gauge(
            "stuck",
            "1 for a partition that does not go on, because its next record cannot be read.",
            "topic",
            "partition",
        )
        self._held_back = self._gauge(
            "held_back",
            "1 for a partition whose next records wait for the end of a producer's transaction.",
            "topic",
            "partition",
        )
        self.stuck_partitions = self.held_back_partitions = frozenset[tuple[str, int]]()
        self._held = self._counter("holds_total", "Times a record held its key to be tried again.")
        self._commits = self._counter(
            "commits_total",
            "Commits of offsets, by outcome: ok, failed, overtaken by a rebalance.",
            "outcome",
        )
        self._rebalances = self._counter(
            "rebalances_total",
            "Changes of the assignment, by kind: assigned, revoked, lost.",
            "kind",
        )
        # `increase` does not see the first value of a series: it must be there with 0.
        for result in RESULTS:
            self._records.labels(group, result)
        for kind in ("assigned", "revoked", "lost"):
            self._rebalances.labels(group, kind)
        self._has = self._gauge("partitions", "Partitions that it has.")
        self._has.labels(group).set(0)
        self._doubts = self._counter(
            "doubts_total",
            "Times that nothing was begun, until the group said whose the partition is.",
        )
        self._refused = self._counter(
            "refused_total",
            "Times that the inbox refused what another member has claimed the partition of.",
        )
        for counter in (self._held, self._known, self._doubts, self._refused):
            counter.labels(group)
        self._pauses = self._counter(
            "pauses_total",
            "Times that no more records were taken, by cause: memory, skew.",
            "cause",
        )
        self._in_memory = self._gauge("records_in_memory", "Records in line or at work.")
        self._bytes = self._gauge("bytes_in_memory", "Bytes of their keys and values.")
        self._lanes = self._gauge("lanes", "Keys with records in memory.")
        self._lanes_held = self._gauge(
            "lanes_held", "Keys that wait for a record to be tried again."
        )
        self._oldest = self._gauge(
            "handler_seconds", "For how long the longest running handler has been at work."
        )
        self._lag = self._gauge(
            "lag_rows",
            "Records from the committed offset to the partition's end.",
            "topic",
            "partition",
        )
        self._lag_seconds = self._gauge(
            "lag_seconds", "Age of the oldest record in memory.", "topic", "partition"
        )
        self._unmoved = self._gauge(
            "unmoved_seconds",
            "For how long the offset to commit has not moved although records come after it.",
            "topic",
            "partition",
        )
        self._ages: dict[tuple[str, int], float] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._amplification = self._gauge(
            "amplification",
            "Records for each event and round of a topic: 1 where nothing comes twice.",
            "topic",
        )
        self._beyond_inbox = self._gauge(
            "beyond_inbox", "1 while the lag is longer than the inbox remembers, else 0."
        )
        self._beyond_inbox.labels(group).set(0)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(
            f"dovecote_consumer_{name}", text, ["group", *labels], registry=self.registry
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"dovecote_consumer_{name}", text, ["group", *labels], registry=self.registry)

    def completed(self, results: Mapping[tuple[str, str], int], held: int) -> None:
        """Count records by outcome and reason, and keys that are held."""
        for (outcome, reason), records in results.items():
            if records:
                self._records.labels(self._group, outcome).inc(records)
            if reason:
                self._skipped.labels(self._group, reason).inc(records)
            if outcome in {"handled", "skipped"}:
                self.handled_in_all += records
        if held:
            self._held.labels(self._group).inc(held)

    def attempt_failed(self) -> None:
        """Note that an attempt failed; records that only wait have none."""
        self.failed_in_all += 1

    def remembered(self, records: int) -> None:
        self._known.labels(self._group).inc(records)

    def has(self, partitions: Collection[tuple[str, int]]) -> None:
        """Set which partitions it has; from each topic of them offsets may expire."""
        self._has.labels(self._group).set(len(partitions))
        for topic in {topic for topic, _ in partitions}:
            self._expired.labels(self._group, topic)

    def expired(self, topic: str, offsets: int) -> None:
        self._expired.labels(self._group, topic).inc(offsets)
        self.expired_in_all += offsets

    def stepped_over(self, topic: str, offsets: int) -> None:
        self._stepped_over.labels(self._group, topic).inc(offsets)

    def stuck(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Set which partitions do not go on because they cannot be read."""
        found = frozenset(partitions)
        self._set(self._stuck, found, self.stuck_partitions)
        self.stuck_partitions = found

    def held_back(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Set which partitions do not go on because a transaction is open."""
        found = frozenset(partitions)
        self._set(self._held_back, found, self.held_back_partitions)
        self.held_back_partitions = found

    def _set(
        self,
        gauge: Gauge,
        found: AbstractSet[tuple[str, int]],
        before: AbstractSet[tuple[str, int]],
    ) -> None:
        for topic, partition in found - before:
            gauge.labels(self._group, topic, str(partition)).set(1)
        for topic, partition in before - found:
            with suppress(KeyError):  # older clients raise it for a series that there is not
                gauge.remove(self._group, topic, str(partition))

    def committed(self, outcome: str) -> None:
        self._commits.labels(self._group, outcome).inc()

    def rebalanced(self, kind: str) -> None:
        self._rebalances.labels(self._group, kind).inc()

    def paused(self, cause: str) -> None:
        self._pauses.labels(self._group, cause).inc()

    def doubted(self) -> None:
        self._doubts.labels(self._group).inc()

    def refused(self) -> None:
        self._refused.labels(self._group).inc()

    def levels(self, *, records: int, size: int, lanes: int, held: int, oldest: float) -> None:
        """Set the gauges of what is in memory."""
        self._in_memory.labels(self._group).set(records)
        self._bytes.labels(self._group).set(size)
        self._lanes.labels(self._group).set(lanes)
        self._lanes_held.labels(self._group).set(held)
        self._oldest.labels(self._group).set(oldest)

    def lag(self, topic: str, partition: int, rows: int, seconds: float) -> None:
        self._lag.labels(self._group, topic, str(partition)).set(rows)
        self._lag_seconds.labels(self._group, topic, str(partition)).set(seconds)
        self._ages[topic, partition], self._rows[topic, partition] = seconds, rows

    def unmoved(self, topic: str, partition: int, seconds: float) -> None:
        self._unmoved.labels(self._group, topic, str(partition)).set(seconds)

    @property
    def longest_lag(self) -> float:
        """The largest of the lags in seconds."""
        return max(list(self._ages.values()), default=0.0)

    @property
    def rows_behind(self) -> int:
        """The sum of the lags in rows."""
        return sum(list(self._rows.values()))

    def amplified(self, by_topic: Mapping[str, float]) -> None:
        """Set the number of records for each event of a topic."""
        for topic, value in by_topic.items():
            self._amplification.labels(self._group, topic).set(value)

    def beyond_inbox(self, behind: bool) -> None:  # noqa: FBT001  # a state, not a switch
        self._beyond_inbox.labels(self._group).set(behind)

    def gone(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget partitions that another consumer has now."""
        for topic, partition in partitions:
            self._ages.pop((topic, partition), None)
            self._rows.pop((topic, partition), None)
            for gauge in (self._lag, self._lag_seconds, self._unmoved):
                with suppress(KeyError):  # older clients raise it for a series that there is not
                    gauge.remove(self._group, topic, str(partition))
