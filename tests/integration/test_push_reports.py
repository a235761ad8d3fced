"""Reports of push's processes count while they are fresh, whatever Postgres's clock does."""

from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from dovecote.push.rules.sending.ports import DeliveryReport
from dovecote.push.store import schema
from dovecote.push.store.notes import Notes
from dovecote.push.store.tables import Tables

TOLD = DeliveryReport(running=True)


@pytest.mark.parametrize("moved", ["1 hour", "-1 hour"])
def test_a_report_of_a_process_that_is_gone_ends_though_the_clock_was_moved(
    database: str, moved: str
) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn)
    with closing(Tables(database)) as tables:
        ends(database, Notes(tables), moved)


def ends(database: str, notes: Notes, moved: str) -> None:
    notes.report(uuid4(), {"slack": TOLD})
    assert notes.reports() == {"slack": [TOLD]}
    with psycopg.connect(database) as conn:
        conn.execute("UPDATE push.reports SET at = at + %s::interval", [moved])

    assert notes.reports() == {}

    notes.report(uuid4(), {"slack": TOLD})
    assert notes.reports() == {"slack": [TOLD]}
    with psycopg.connect(database) as conn:
        left = conn.execute("SELECT count(*) FROM push.reports").fetchone()
    assert left == (1,)
