"""An attempt that Postgres refuses to keep stops no others from being recorded."""

from typing import Any

import psycopg
import pytest

from dovecote.push.errors import Away, RequestRefused
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.store.journal import Journal
from tests.support.waiting import until


class Kept:
    """Notes that refuse what they are told to."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]
        self.events: list[str] = []

    def write(self, attempts: Any, counts: Any) -> None:  # noqa: ARG002  # as the notes have it
        if self.errors:
            raise self.errors.pop(0)
        self.events += [each.event_id for ring in attempts.values() for each in ring]


def attempt(event_id: str) -> AttemptReport:
    return AttemptReport(
        subscription="s",
        event_id=event_id,
        topic="orders",
        partition=0,
        offset=1,
        key=None,
        number=1,
        at=0.0,
        seconds=0.1,
        status=200,
        outcome="delivered",
        detail="",
    )


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (RequestRefused("no"), ["second"]),
        (Away("not now"), ["first", "second"]),
        (psycopg.errors.UndefinedTable("no table"), ["first", "second"]),
    ],
)
def test_a_refused_attempt_is_let_go_and_any_other_is_written_later(
    error: Exception, kept: list[str]
) -> None:
    notes = Kept(error)
    journal = Journal(None, notes, every=0.01)  # type: ignore[arg-type]  # it disables nothing
    journal.attempted(attempt("first"))
    journal.start()
    until(lambda: not notes.errors, within=5, what="the error")
    journal.attempted(attempt("second"))
    journal.stop()
    assert notes.events == kept
