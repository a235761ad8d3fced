"""Hand a handler the records of several keys together, and give each its own verdict."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dedup.retries.aside import Aside
from dedup.rules.lanes.lanes import Lane, Run, Stretch
from dedup.rules.policies.policies import Failed, Handled, Policy, Verdict, attempt
from dedup.rules.policies.results import Done, Early, Result, Skip, failure
from dedup.rules.record import Record
from dedup.serving.certainty import Certainty
from dedup.serving.handlers import answers_in, checked
from dedup.serving.runs import identity_of, next_run

Answer: TypeAlias = Result | Exception | None
"""None: the handler was not called."""

_CHOSEN = Done()
DONE = Done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Chooses records to handle together; the policy decides before the handler runs."""

    policy: Policy
    matches: Callable[[Record], bool]
    aside: Aside

    def choose(self, lanes: Sequence[Lane[Record]]) -> list["Chosen"]:
        """Return the runs to begin, with the records of each that are to be handled."""
        chosen = []
        for lane in lanes:
            run = next_run(lane)
            if run is not None and run.stretch.live and run.state is None:
                verdicts = list(
                    self.policy(
                        run.records,
                        matches=self.matches,
                        handle=self._choose,
                        identity=identity_of,
                    )
                )
                chosen.append(Chosen(run, verdicts))
        return chosen

    def _choose(self, record: Record) -> Result:
        after = self.aside.early(record)
        if after is not None:
            return Early("not due", after, scheduled=True)
        _ = record.event  # a record that cannot be read must not fail the others
        return _CHOSEN


@dataclass(slots=True)
class Chosen:
    """A run, and its verdicts except those that depend on the handler."""

    run: Run[Record]
    verdicts: list[Verdict[Record]]

    def records(self) -> list[Record]:
        return [each.record for each in self.verdicts if _is_chosen(each)]

    def stretches(self) -> list[Stretch[Record]]:
        """Return the stretch of each of `records`."""
        return [self.run.stretch] * len(self.records())

    def answered(self, answers: Iterator[Answer]) -> list[Verdict[Record] | tuple[Record, None]]:
        """
        Return the verdicts, now that the handler has answered for the chosen records.

        Records that it was not called for get no verdict yet: they are handled one by one.
        """
        found: list[Verdict[Record] | tuple[Record, None]] = []
        for each in self.verdicts:
            if not _is_chosen(each):
                found.append(each)
            elif (answer := next(answers)) is None:
                found.append((each.record, None))
            else:
                found.append(_answered(each.record, answer))
        return found


def decided(found: Sequence[Verdict[Record] | tuple[Record, None]]) -> int:
    """Return how many verdicts there are before the first record that was not handled."""
    return next((n for n, each in enumerate(found) if isinstance(each, tuple)), len(found))


class Turns:
    """Decides whose turn it is when records are handled one by one."""

    def __init__(self, certainty: Certainty) -> None:
        self.answers: list[Answer] = []
        self._certainty = certainty
        self._waiting: set[tuple[str, int, bytes | None]] = set()
        self._away: Early | None = None

    def has(self, record: Record, stretch: Stretch[Record]) -> bool:
        """Return whether to call the handler; otherwise note the answer."""
        is_ours = stretch.live and time.monotonic() <= self._certainty.until
        if (record.topic, record.partition, record.key) in self._waiting or not is_ours:
            self.note(record, None)
        elif self._away is not None:
            self.note(record, self._away)  # what is unavailable for one record is so for all
        else:
            return True
        return False

    def note(self, record: Record, answer: Answer) -> None:
        self.answers.append(answer)
        if isinstance(answer, Early):
            self._away = answer
        if record.key is not None and not isinstance(answer, Done | Skip):
            self._waiting.add((record.topic, record.partition, record.key))


def answers_of(records: Sequence[Record], given: object) -> list[Result]:
    """Return the answers that a handler has given for `records`, one for each."""
    answers = answers_in(given, len(records))
    return [DONE if each is None else checked(each) for each in answers]


def _is_chosen(verdict: Verdict[Record]) -> bool:
    return isinstance(verdict, Handled) and verdict.result is _CHOSEN


def _answered(record: Record, answer: Result | Exception) -> Verdict[Record]:
    if isinstance(answer, Exception):
        return Failed(record, failure(answer))
    return attempt(record, lambda _: answer)
