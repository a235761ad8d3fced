"""Settle one turn on an executor: evaluate its records once, write the results once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from dedup.retries.backoff import Backoff
from dedup.rules.policies.departures import Exits
from dedup.settings.policy import PolicySettings
from spark_jobs.errors import JobError
from spark_jobs.policy.evaluation import evaluate, load
from spark_jobs.policy.router import Router
from spark_jobs.query.batch import Batch, BatchReport
from spark_jobs.rows.contexts import contexts, headers_in
from spark_jobs.rows.records import Records
from spark_jobs.sink import sink
from spark_jobs.sink.markers import Counts, Turn
from spark_jobs.sink.outgoing import Evaluation, Topics
from spark_jobs.sink.recount import of_rows
from spark_jobs.sink.sink import BatchInput, SinkConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """The common settings of all batches of a query; goes to the executors."""

    operator: PolicySettings
    topics: Topics
    backoff: Backoff
    sink: SinkConfig
    partitions: int
    """The number of lanes: a key has one, and each has its own transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The records of a turn."""

    rows: Records
    newest: int
    """The newest timestamp at the end of a partition, in milliseconds; 0: there is no record."""
    here: tuple[int, int] | None = None
    """This lane and the number of lanes, if records of other lanes may be among these."""
    misplaced: int = 0
    """Records of this lane that lay in a partition of another one."""
    expired: int = 0
    """Offsets that were deleted before they were read."""
    size: int = 0
    """The bytes of the values."""
    before: Counts = field(default_factory=Counts)
    """The rows that were removed earlier."""


def settle(
    config: StageConfig, batch: Batch, lane: int, *, given: BatchInput, take: Callable[[], Taken]
) -> BatchReport:
    """
    Write the results of a turn, unless a marker says that an earlier run did; report them.

    `take` is called only if they must be written.
    """
    router = Router(topics=config.topics, backoff=config.backoff, now=batch.now)
    taken: list[Taken] = []
    origins: list[str] = []
    misplaced = 0

    def evaluated() -> Evaluation:
        nonlocal misplaced
        found = take()
        taken.append(found)
        if batch.traced:  # before they are let go
            origins.extend(contexts(len(found.rows.keys), headers_in(found.rows)))
        try:
            evaluation = evaluate(found.rows, load(config.operator), router, found.here)
        except Exits as left:
            raise JobError(str(left.reason)) from left
        misplaced = evaluation.misplaced
        return evaluation._replace(counts=evaluation.counts + found.before)

    turn = Turn(
        query=batch.query, batch=batch.number, partition=lane, partitions=config.partitions
    )
    try:
        settled = sink.settle(
            turn,
            given,
            config=config.sink,
            evaluate=evaluated,
            replace_poison=router.unwritable,
            recount=partial(of_rows, config.topics.retry),
            adopt=batch.adopt,
            newest=batch.writers.get(lane, ""),
        )
    except JobError as error:
        # Returned as a value: Spark would wrap an exception in a page of stack traces, and retry
        # to no avail.
        return BatchReport(partition=lane, error=type(error).__name__, message=str(error))
    return BatchReport(
        partition=lane,
        counts=settled.counts,
        replayed=settled.replayed,
        misplaced=misplaced + sum(each.misplaced for each in taken),
        expired=sum(each.expired for each in taken),
        size=sum(each.size for each in taken),
        newest=max((each.newest for each in taken), default=0),
        writer=settled.writer,
        contexts=origins,
    )
