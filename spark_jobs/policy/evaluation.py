"""Run a policy over the records of one turn; count what goes out and what does not."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias

from dedup.rules.identity import Identity
from dedup.rules.policies.decode import DECODERS
from dedup.rules.policies.expressions import Filter, Handler, compile_filter, load_handler
from dedup.rules.policies.outputs import Encoded, encode_output
from dedup.rules.policies.policies import (
    POLICIES,
    Failed,
    Handled,
    Policy,
    Skipped,
    Verdict,
    exact,
    first_match,
    latest,
)
from dedup.rules.policies.results import Done, Result
from dedup.settings.policy import ExactSettings, PolicySettings
from outbox.envelope import Record
from outbox.event import Event
from spark_jobs.policy.router import Router
from spark_jobs.rows.homes import homes
from spark_jobs.rows.records import Records, by_key
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


def evaluate(
    rows: Records, operator: LoadedOperator, router: Router, here: tuple[int, int] | None = None
) -> Evaluation:
    """
    Return the results of a turn's records; handlers run here, and nowhere else.

    `here` is this lane's number, and how many there are. With it, a record whose key belongs to
    another lane is not decided: it goes to the retry topic, where our own producer puts it right.
    """
    handling = _Handling(rows, operator)
    policy = handling.policy()
    outgoing: list[Outgoing] = []
    skipped = handling.skipped
    handled = retried = dead = misplaced = 0
    groups = by_key(rows.keys)
    if here is not None:
        groups, elsewhere = _parted(groups, *here)
        misplaced = len(elsewhere)
        outgoing += [router.returned(rows.record(row), rows.identity(row)) for row in elsewhere]
        retried += sum(each.topic == router.topics.retry for each in outgoing)
        dead = misplaced - retried
    matches, handle, identity = handling.matches, handling.handle, handling.identity
    for _, of_key in groups:
        for verdict in policy(of_key, matches=matches, handle=handle, identity=identity):
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
        rows.let_go(of_key)
    return Evaluation(
        outgoing,
        Counts(
            rows=len(rows.keys),
            handled=handled,
            skipped={kind_: count for kind_, count in sorted(skipped.items()) if count},
            retried=retried,
            dead=dead,
        ),
        misplaced,
    )


_Groups: TypeAlias = list[tuple[bytes | None, list[int]]]


def _parted(groups: _Groups, lane: int, lanes: int) -> tuple[_Groups, list[int]]:
    """Return the groups that belong to `lane`, and the rows of the others."""
    keyed = [key for key, _ in groups if key is not None]
    of_key = dict(zip(keyed, homes(keyed, lanes), strict=True))
    ours = [group for group in groups if group[0] is None or of_key[group[0]] == lane]
    if len(ours) == len(groups):
        return groups, []
    elsewhere = [
        row for key, rows in groups if key is not None and of_key[key] != lane for row in rows
    ]
    return ours, sorted(elsewhere)


class _Handling:
    """The functions that a policy calls with a row's number; each row is decoded once."""

    def __init__(self, rows: Records, operator: LoadedOperator) -> None:
        self._rows, self._operator = rows, operator
        self.skipped: Counter[str] = Counter()
        self._row = -1
        self._record: Record
        self._event: Event
        self._outputs: Mapping[int, Sequence[Encoded]] = {}
        self._known: tuple[int, Identity] | None = None

    def policy(self) -> Callable[..., Iterator[Verdict[int]]]:
        if self._operator.by_value:
            return partial(exact, fingerprint=self._rows.fingerprint)
        if self._operator.policy in {first_match, latest}:
            return partial(self._operator.policy, pass_over=self._passed_over)
        return self._operator.policy

    def _passed_over(
        self, rows: Iterable[int], winner: int, identity: Callable[[int], Identity]
    ) -> Iterable[Skipped[int]]:
        """Count what `passed_over` would yield, which most records of a batch are."""
        found = list(rows)
        if found:
            same = self._rows.duplicates(found, identity(winner))
            self.skipped["duplicate"] += same
            self.skipped["superseded"] += len(found) - same
        return ()

    def identity(self, row: int) -> Identity:
        """Return the identity of a row; the last is kept, for each winner is asked for twice."""
        known = self._known
        if known is None or known[0] != row:
            known = self._known = row, self._rows.identity(row)
        return known[1]

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
        return router.route(verdict, record, self.identity(row), self._outputs.get(row, ()))

    def _decoded(self, row: int) -> Event:
        if row != self._row:
            record = self._rows.record(row)
            self._event = self._operator.decode(record)
            self._row, self._record = row, record
        return self._event
