"""Count a record that its topic refuses as the dead letter that it becomes."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from outbox import envelope
from spark_jobs.sink.markers import Counts
from spark_jobs.sink.outgoing import Outgoing

Recount: TypeAlias = Callable[[Counts, Outgoing, bool], Counts]
"""Returns the counts once a record was refused; the last argument: another one of its row was."""


def of_results(late: str | None, counts: Counts, record: Outgoing, _: bool = False) -> Counts:  # noqa: FBT001, FBT002  # as `Recount` has it
    """Return `counts` of a job that counts results: each of them is handled by itself."""
    if record.topic != late:  # a late record is counted as skipped, wherever it goes
        counts = replace(counts, handled=max(0, counts.handled - 1))
    return replace(counts, dead=counts.dead + 1)


def of_rows(retry: str, counts: Counts, record: Outgoing, again: bool) -> Counts:  # noqa: FBT001  # as `Recount` has it
    """Return `counts` of a job that counts rows: one with several outputs is dead once."""
    if again:
        return counts
    if record.topic == retry and not _asked_to_come_again(record):
        return replace(counts, retried=counts.retried - 1, dead=counts.dead + 1)
    return of_results(None, counts, record)


def _asked_to_come_again(record: Outgoing) -> bool:
    """Return whether the handler wanted the record later: such a row counts as handled."""
    names = {name for name, _ in record.headers}
    return envelope.NOT_BEFORE in names and envelope.ERROR not in names
