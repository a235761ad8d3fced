"""Outboxes may be added, put in another order, or taken out, and the state is still theirs."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.audited_apart import Apart, record, row


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("shop", "billing"), id="added"),
        pytest.param(("billing", "shop"), id="added before it"),
        pytest.param(("shop",), id="as it was"),
    ],
)
def test_open_rows_stay_those_of_their_outbox(tmp_path: Path, names: tuple[str, ...]) -> None:
    state = tmp_path / "audit.sqlite3"
    apart = Apart(rows=[row(1), row(2)], records=[record(2)], state=state)
    apart.read(2)
    apart.auditor._commit()
    apart.store.close()
    again = Apart(state=state, names=names)
    matcher = again.comparison.matcher
    (open_row,) = matcher.rows.values()
    assert names[matcher.kinds[open_row.kind].outbox] == "shop"
    again.read(2)
    again.rows, again.records = [row(3)], [record(3)]
    again.read(2)
    assert again.judge() == ["lost"]
    assert again.store.findings()[0]["part"] == "outbox/shop"


def test_an_outbox_that_is_taken_out_leaves_no_open_rows(tmp_path: Path) -> None:
    state = tmp_path / "audit.sqlite3"
    apart = Apart(rows=[row(1)], state=state, names=("gone", "shop"), outbox="gone")
    apart.read(2)
    apart.auditor._commit()
    apart.store.close()
    for _ in range(2):
        again = Apart(state=state, records=[record(4)])
        again.read(2)
        assert again.comparison.matcher.rows == {}
        again.judge()
        again.store.close()


def test_an_outbox_that_is_added_is_audited_from_then_on(tmp_path: Path) -> None:
    state = tmp_path / "audit.sqlite3"
    apart = Apart(state=state)
    apart.auditor._commit()
    apart.store.close()
    again = Apart(state=state, names=("shop", "billing"))
    table = SimpleNamespace(state="table", end=0, slot=None)
    again.comparison.sources.logs[1] = SimpleNamespace(look=lambda: table, leave=lambda _: None)
    again.require_same(1)
    outlooks = again.comparison.outlooks
    assert [each.window.since for each in outlooks] == [None, "1:1:"]
    assert [each.is_added for each in outlooks] == [False, False]
    (gap,) = again.comparison.sources.not_audited
    assert gap.text.startswith("outbox/billing: its audit begins at ")
