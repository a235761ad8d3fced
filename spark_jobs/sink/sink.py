"""
Write a turn exactly once: fence, read the marker, evaluate, commit records and marker together.

A turn is one shuffle partition of one micro-batch. Spark may run it twice, at once or years later;
the marker decides which run writes.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from outbox.envelope import WITHOUT_VALUE
from spark_jobs.errors import KafkaUnavailable, MarkerRefused, Unwritable
from spark_jobs.sink import times
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.markers import (
    Committed,
    Counts,
    Decision,
    Marker,
    Ranges,
    Refused,
    Turn,
    Write,
    decide,
)
from spark_jobs.sink.outgoing import Evaluation, Outgoing
from spark_jobs.sink.recount import Recount, of_results
from spark_jobs.sink.writer import Fenced, NotCommitted, Poisoned, Writer

_log = logging.getLogger("dovecote.spark")

_TRIES = 5
# Records that no topic takes are replaced in one transaction after the other, this many at most.
_POISON_LIMIT = 1_000
# A worker keeps the producers of the shuffle partitions that it wrote last; more threads than
# cores would help nobody.
_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """Where a query's markers are, and how its transactions are named."""

    kafka: Mapping[str, str]
    marker_topic: str
    transactional_id: str
    """The query's; each shuffle partition appends its number."""
    timeout: float
    """The seconds that a step of a transaction may take."""

    def __repr__(self) -> str:
        return f"SinkConfig({self.transactional_id})"  # the properties may contain secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """The rows of a turn, as far as its marker describes them."""

    digest: str
    ranges: Ranges
    way: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """The results of a turn, and whether an earlier run had written it already."""

    counts: Counts
    replayed: bool
    writer: str = field(default="", compare=False)
    """The name of the partition's newest writer; empty: unknown."""


Evaluate = Callable[[], Evaluation]
Replace = Callable[[Outgoing, str], Outgoing]
"""Returns the dead letter for a record that its topic cannot take."""

_EACH_ALONE: Recount = partial(of_results, None)

_writers: OrderedDict[str, Writer] = OrderedDict()
"""This worker's writers, by transactional id."""


def settle(
    turn: Turn,
    rows: BatchInput,
    *,
    config: SinkConfig,
    evaluate: Evaluate,
    replace_poison: Replace,
    recount: Recount = _EACH_ALONE,
    adopt: bool = False,
    newest: str = "",
) -> Settled:
    """
    Write the result of `evaluate`, unless a committed marker says that it is written.

    `evaluate` is called at most once, and not at all if nothing needs to be written. `newest`
    names the writer that settled the partition's last turn, if it is known; all other writers are
    then known to be fenced.

    Raises:
        MarkerRefused: the marker found is not this turn's.
    """
    attempt = _Attempt(turn, rows, config, adopt=adopt, newest=newest, recount=recount)
    retrying = Retrying(
        retry=retry_if_exception_type(NotCommitted),
        stop=stop_after_attempt(_TRIES),
        wait=wait_exponential(multiplier=0.05, max=5),
        before_sleep=partial(_warn, turn),
        reraise=True,
    )
    try:
        return retrying(attempt.run, evaluate, replace_poison)
    except NotCommitted as error:
        msg = (
            f"batch {turn.batch}, shuffle partition {turn.partition}: Kafka did not take it in "
            f"{_TRIES} tries ({error}). Nothing of it is visible; the job goes on from here when "
            "it is started again"
        )
        raise KafkaUnavailable(msg) from error


class _Attempt:
    """The attempts at one turn, which share its evaluation."""

    def __init__(
        self,
        turn: Turn,
        rows: BatchInput,
        config: SinkConfig,
        *,
        adopt: bool,
        newest: str,
        recount: Recount = _EACH_ALONE,
    ) -> None:
        self._turn, self._rows, self._config, self._adopt = turn, rows, config, adopt
        self._newest, self._recount = newest, recount
        self._refused: set[tuple[str, int, int]] = set()
        """Places of the records that are counted as dead letters."""
        self._evaluation: Evaluation | None = None
        self._one_by_one = False

    def run(self, evaluate: Evaluate, replace_poison: Replace) -> Settled:
        """Try once with each writer that is needed to get rid of records that no topic takes."""
        last = ""
        for _ in range(_POISON_LIMIT):
            try:
                return self._once(evaluate)
            except Poisoned as error:
                last = self._dispose_of(error, replace_poison) or last
        msg = (
            f"batch {self._turn.batch}, shuffle partition {self._turn.partition}: after "
            f"{_POISON_LIMIT} tries topics still refuse records, the last one {last}. Nothing of "
            "the batch is committed. If that is their size, raise max.message.bytes of the topic "
            'and "message.max.bytes" in [kafka]'
        )
        raise Unwritable(msg)

    def _once(self, evaluate: Evaluate) -> Settled:
        key = f"{self._config.transactional_id}.{self._turn.partition}"
        writer = self._kept(key) or self._opened(key)
        try:
            settled = self._with(writer, evaluate)
        except BaseException:
            writer.close()
            raise
        if self._one_by_one:
            writer.close()
        else:
            _keep(key, writer)
        return settled

    def _kept(self, key: str) -> Writer | None:
        """
        Return this worker's writer, if it expects that the turn must be written.

        The fence will show whether that is still true. That a turn need not be written takes a
        look at the marker itself: an operator may have made the query adopt it since.
        """
        writer = _writers.pop(key, None)
        if writer is None:
            return None
        is_fenced = bool(self._newest) and writer.name != self._newest
        if not is_fenced and isinstance(self._decision(writer), Write):
            return writer
        writer.close()
        return None

    def _decision(self, writer: Writer) -> Decision:
        return decide(writer.marker, self._turn, digest=self._rows.digest, adopt=self._adopt)

    def _with(self, writer: Writer, evaluate: Evaluate) -> Settled:
        decision = self._decision(writer)
        if isinstance(decision, Refused):
            raise MarkerRefused(decision.reason)
        if isinstance(decision, Committed):
            return Settled(decision.marker.counts, replayed=True, writer=writer.name)
        if self._evaluation is None:
            self._evaluation = evaluate()
            self._fit(times.known(self._config.kafka))
        marker = Marker(
            query=self._turn.query,
            batch=self._turn.batch,
            partition=self._turn.partition,
            partitions=self._turn.partitions,
            digest=self._rows.digest,
            ranges=self._rows.ranges,
            way=self._rows.way,
            counts=self._evaluation.counts,
        )
        writer.commit(self._evaluation.outgoing, marker)
        return Settled(self._evaluation.counts, replayed=False, writer=writer.name)

    def _opened(self, key: str) -> Writer:
        config = self._config
        writer = Writer(
            config.kafka,
            transactional_id=key,
            partition=self._turn.partition,
            topic=MarkerTopic(config.marker_topic, config.kafka, timeout=config.timeout),
            timeout=config.timeout,
            one_by_one=self._one_by_one,
        )
        try:
            writer.open()
        except BaseException:
            writer.close()
            raise
        return writer

    def _dispose_of(self, error: Poisoned, replace_poison: Replace) -> str:
        """
        Replace rejected records by dead letters; if none is known, find them.

        Return where the last one comes from, and why it was refused.
        """
        if self._evaluation is None:
            raise error
        if error.for_time:
            self._restamp(error)
            return str(error)
        if not error.rejected:
            if self._one_by_one:
                msg = f"the broker refuses a record and does not say which: {error}"
                raise Unwritable(msg)
            self._one_by_one = True
            return str(error)
        outgoing, counts = list(self._evaluation.outgoing), self._evaluation.counts
        last = ""
        for position, reason in error.rejected.items():
            record = outgoing[position]
            dead = replace_poison(record, reason)
            if record.topic == dead.topic and _is_emptied(record):
                raise Unwritable(_unwritable(record, reason))
            if record.topic != dead.topic:
                row = record.origin[:3]
                counts = self._recount(counts, record, row in self._refused)
                self._refused.add(row)
            outgoing[position] = dead
            last = f"of {_place(record)} to {record.topic}: {reason}"
        self._evaluation = self._evaluation._replace(outgoing=outgoing, counts=counts)
        return last

    def _restamp(self, error: Poisoned) -> None:
        """Give the records whose timestamps are refused the time of writing."""
        outgoing = self._evaluation.outgoing if self._evaluation else []
        topics = {each.topic for each in outgoing if each.timestamp}
        if not topics:
            msg = (
                f"the broker refuses the time of writing ({error}): this machine's clock is "
                "further from the broker's than message.timestamp.after.max.ms (or "
                "before.max.ms) of the topic allows. Set the clock that is wrong. Nothing of the "
                "batch is committed, and the job goes on from here when it is started again"
            )
            raise Unwritable(msg)
        bounds = times.ask(self._config.kafka, topics)
        if not self._fit(bounds):  # the clocks differ a little
            self._fit(dict.fromkeys(topics, times.NOTHING))

    def _fit(self, bounds: Mapping[str, times.Bounds]) -> int:
        """Return how many records have got the time of writing."""
        if not bounds or self._evaluation is None:
            return 0
        now = time.time_ns() // 1_000_000
        outgoing, restamped = times.fitted(self._evaluation.outgoing, bounds, now)
        counts = self._evaluation.counts
        self._evaluation = self._evaluation._replace(
            outgoing=outgoing,
            counts=replace(counts, restamped=counts.restamped + restamped),
        )
        return restamped


def _keep(key: str, writer: Writer) -> None:
    _writers[key] = writer
    while len(_writers) > _KEPT:
        _writers.popitem(last=False)[1].close()


def forget() -> None:
    """Close this process's writers."""
    while _writers:
        _writers.popitem()[1].close()


def _place(record: Outgoing) -> str:
    """Return where a record comes from; a result of several has a key alone."""
    origin = record.origin
    if origin.partition < 0:
        return f"the key {(record.key or b'').decode(errors='backslashreplace')!r}"
    return f"{origin.topic}/{origin.partition}/{origin.offset}"


def _is_emptied(letter: Outgoing) -> bool:
    """Return whether it lacks its value; the letter of a tombstone never had one."""
    return letter.value is None and any(name == WITHOUT_VALUE for name, _ in letter.headers)


def _unwritable(record: Outgoing, reason: str) -> str:
    return (
        f"the record of {_place(record)} cannot be written even "
        f"as a dead letter without its value, to {record.topic}: {reason}. Nothing of its batch "
        "is committed; raise max.message.bytes of that topic"
    )


def _warn(turn: Turn, state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    _log.log(
        # Being fenced only shows that another worker had the partition in between.
        logging.DEBUG if isinstance(error, Fenced) else logging.WARNING,
        "batch %d, shuffle partition %d: %s; trying again with a new producer",
        turn.batch,
        turn.partition,
        str(error),  # the error holds its frames, and with them the producer, as long as the line
    )
