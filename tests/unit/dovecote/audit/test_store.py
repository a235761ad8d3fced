"""The findings of an auditor are kept until they are in a statement."""

import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from dovecote.audit import store as module
from dovecote.audit.rules.finding import Finding
from dovecote.audit.rules.matching import Bounds, Matcher, Row
from dovecote.audit.store import Store
from outbox.errors import DovecoteError

PHANTOM = Finding(
    kind="phantom",
    part="outbox/shop",
    topic="orders",
    id="0",
    key=None,
    at=0,
    places=(),
    reason="no committed row has this id",
)


def test_many_findings_hide_none_of_another_kind_or_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_MOST_FINDINGS", 10)
    file = tmp_path / "audit.sqlite3"
    store = Store(file)
    assert sum(store.add(replace(PHANTOM, id=str(n)), n) for n in range(20)) == 10
    lost = replace(PHANTOM, kind="lost")
    assert store.add(lost, 20)
    store.close()
    store = Store(file)
    assert not store.add(replace(PHANTOM, id="20"), 20)
    store.stated()
    assert sum(store.add(replace(PHANTOM, id=str(n)), n) for n in range(20, 40)) == 10
    assert len(store.findings(unstated=True)) == 10
    store.stated()
    assert store.add(replace(PHANTOM, id="40"), 40)


def test_a_file_of_the_version_before_is_read_on(tmp_path: Path) -> None:
    file = tmp_path / "audit.sqlite3"
    older = sqlite3.connect(file)
    older.execute(
        "CREATE TABLE rows (id BLOB, kind INTEGER, position INTEGER, appended INTEGER,"
        " digest BLOB, seen INTEGER, PRIMARY KEY (id, position)) WITHOUT ROWID"
    )
    older.execute("INSERT INTO rows VALUES (?, 0, 7, 1, ?, 5)", [(9).to_bytes(16), b"digest"])
    older.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    older.execute("INSERT INTO facts VALUES ('format', '1')")
    older.commit()
    older.close()
    matcher = Matcher(Bounds(late=1_000))
    Store(file).load(matcher, ["shop"])
    assert matcher.rows == {9: Row(0, 7, 1, b"digest", 5)}


def test_a_full_disk_is_said_and_costs_nothing_that_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "audit.sqlite3"
    store = Store(file)
    store.note("kept", 1)
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    said = f"the state file {file} cannot be written: database or disk is full; make room"

    def write() -> None:
        with store.explained(), store.whole():
            for n in range(10_000):
                store.note(f"fact {n}", "x" * 100)

    with pytest.raises(DovecoteError, match=re.escape(said)):
        write()
    store.close()
    again = Store(file)
    assert (again.fact("kept"), again.fact("fact 0")) == (1, None)
