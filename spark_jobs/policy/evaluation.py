"""Run a policy over the rows of one shuffle partition; count what goes out and what does not."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from dedup.rules.policies.decode import DECODERS
from dedup.rules.policies.expressions import Filter, Handler, compile_filter, load_handler
from dedup.rules.policies.policies import (
    POLICIES,
    Failed,
    Handled,
    Policy,
    Skipped,
    Verdict,
    exact,
    latest,
)
from dedup.rules.policies.results import Done, Result
from dedup.settings.policy import ExactSettings, PolicySettings
from outbox.envelope import Record
from outbox.event import Event
from spark_jobs.policy.router import Encoded, Router, encode_output
from spark_jobs.rows.columns import Rows
from spark_jobs.sink.markers import Counts, kind
from spark_jobs.sink.outgoing import Evaluation, Outgoing

_DONE = Done()


@dataclass(frozen=True, slots=True)
class LoadedOperator:
    """A policy with the functions of its settings."""

    policy: Policy
    decode: Callable[[Record], Event]
    filter: Filter | None
    handler: Handler | None
    by_value: bool


@lru_cache(maxsize=16)
def load(settings: PolicySettings) -> LoadedOperator:
    """
    Return the operator that `settings` describe; made once per worker, not per batch.

    Raises:
        BadSettings: there is no such filter or handler.
    """
    return LoadedOperator(
        policy=POLICIES[settings.type],
        decode=DECODERS[settings.value],
        filter=None if settings.filter is None else compile_filter(settings.filter),
        handler=None if settings.handler is None else load_handler(settings.handler),
        by_value=isinstance(settings, ExactSettings) and settings.by == "value",
    )


def evaluate(rows: Rows, operator: LoadedOperator, router: Router) -> Evaluation:
    """Return the results of a shuffle partition's rows; handlers run here, and nowhere else."""
    handling = _Handling(rows, operator)
    policy = handling.policy()
    outgoing: list[Outgoing] = []
    skipped: Counter[str] = Counter()
    handled = retried = dead = 0
    for of_key in rows.by_key():
        for verdict in policy(
            of_key,
            matches=handling.matches,
            handle=handling.handle,
            identity=rows.identities.__getitem__,
        ):
            if isinstance(verdict, Skipped):
                skipped[kind(verdict.reason)] += 1
                continue
            routed = handling.route(verdict, router)
            outgoing += routed
            if isinstance(verdict, Handled):
                handled += 1
            elif routed[0].topic == router.topics.retry:
                retried += 1
            else:
                dead += 1
    return Evaluation(
        outgoing,
        Counts(
            rows=len(rows),
            handled=handled,
            skipped=dict(sorted(skipped.items())),
            retried=retried,
            dead=dead,
        ),
    )


class _Handling:
    """The functions that a policy calls with a row's number; each row is decoded once."""

    def __init__(self, rows: Rows, operator: LoadedOperator) -> None:
        self._rows, self._operator = rows, operator
        self._row = -1
        self._record: Record
        self._event: Event
        self._outputs: Mapping[int, Sequence[Encoded]] = {}

    def policy(self) -> Callable[..., Iterator[Verdict[int]]]:
        if self._operator.by_value:
            values = self._rows.values
            return partial(exact, fingerprint=lambda row: values[row])
        return self._operator.policy

    def matches(self, row: int) -> bool:
        passes = self._operator.filter
        if passes is not None:
            return passes(self._decoded(row))
        # An unreadable record must not win. Only `latest` needs to know that here. For the others
        # it does not matter whether filter or handler fails, and duplicates, which are not
        # handled, stay unread.
        if self._operator.policy is latest:
            self._decoded(row)
        return True

    def handle(self, row: int) -> Result:
        event = self._decoded(row)
        handler = self._operator.handler
        if handler is None:
            return _DONE
        result = handler(event)
        if isinstance(result, Done) and result.outputs is not None:
            # Encoded here, so that an output that cannot be written is a failure of the handler.
            outputs = [encode_output(event, n, each) for n, each in enumerate(result.outputs)]
            self._outputs = {row: outputs}
        return result

    def route(self, verdict: Handled[int] | Failed[int], router: Router) -> list[Outgoing]:
        row = verdict.record
        record = self._record if row == self._row else self._rows.record(row)
        return router.route(
            verdict, record, self._rows.identities[row], self._outputs.get(row, ())
        )

    def _decoded(self, row: int) -> Event:
        if row != self._row:
            record = self._rows.record(row)
            self._event = self._operator.decode(record)
            self._row, self._record = row, record
        return self._event
