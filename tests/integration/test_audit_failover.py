"""The auditor knows a server that was promoted without commits that it had read before."""

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dovecote.audit.comparing import Comparison
from dovecote.audit.parts import Outbox, Plan
from dovecote.audit.store import Store
from outbox import write
from tests.support.failover import paired, promote, until_received
from tests.support.relaying import event, installed


def commit(dsn: str, count: int) -> None:
    for number in range(count):
        with psycopg.connect(dsn) as conn:
            write(conn, event("t", number))


def comparison(dsn: str, state: Path) -> Comparison:
    shop = Outbox(name="s", relay="s", dsn=dsn, schema="outbox", retention=3600.0, kafka={})
    made = Comparison(Plan(outboxes=(shop,)), Store(state))
    topics: Any = made.topics
    topics.describe = lambda _: {}
    return made


def read(made: Comparison) -> int:
    for _ in range(3):
        made._rows(0, is_full=False)
    made.commit()
    return len(made.matcher.rows)


@pytest.mark.parametrize("is_lossy", [True, False])
def test_rows_that_a_failover_lost_are_not_judged_and_numbers_that_come_again_hide_none(
    tmp_path: Path, *, is_lossy: bool
) -> None:
    with paired() as pair:
        until_received(pair)
        if is_lossy:
            pair.standby.stop()
        commit(pair.primary.dsn, 4)
        with closing(comparison(pair.primary.dsn, tmp_path / "state")) as before:
            assert read(before) == 4
            before.store.close()
        if is_lossy:
            pair.primary.kill()
            pair.standby.start()
        else:
            until_received(pair)
        promote(pair)
        # New transactions have the numbers of lost ones, and more.
        commit(pair.standby.dsn, 12)
        with closing(comparison(pair.standby.dsn, tmp_path / "state")) as after:
            rows = read(after)
            commit(pair.standby.dsn, 1)
            assert (rows, read(after)) == ((0, 1) if is_lossy else (16, 17))
            assert len(after.sources.over) == is_lossy
            after.store.close()


def test_a_server_that_answers_after_another_one_is_looked_at_before_its_rows_are_read(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(database)
    looks = list[int]()
    with closing(comparison(database, tmp_path / "state")) as made:
        look = made.sources.require_same

        def require_same(index: int) -> None:
            looks.append(index)
            look(index)

        monkeypatch.setattr(made.sources, "require_same", require_same)
        read(made)
        assert looks == [0]
        # As a judge does whose question gets no answer: a proxy leads the next one elsewhere.
        made.readers[0].close()
        read(made)
        assert looks == [0, 0]
        made.store.close()
