"""No actor displaces entries of another one while the database is away."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from dovecote.push.store.audit import Audit, Deed, Entry
from outbox.errors import DovecoteError


class Away:
    """Tables that cannot be reached."""

    def begin(self) -> Any:
        msg = "nobody answers"
        raise DovecoteError(msg)


def entry(actor: str, number: int, status: int) -> Entry:
    deed = Deed("GET", f"/{number}", "", status, "", "", "127.0.0.1", "")
    return Entry(datetime(2026, 1, 1, tzinfo=UTC), actor, "", deed)


def test_while_the_database_is_away_a_flood_of_one_actor_displaces_its_own_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables: Any = Away()
    audit = Audit(tables, most=100)
    for status in (200, 403):
        audit.note(entry("victim", 0, status))
    for number in range(5_000):
        audit.note(entry("flood", number, 403))
    with pytest.raises(DovecoteError):
        audit._write()
    written: list[Entry] = []
    monkeypatch.setattr(audit, "_insert", lambda _, entries: written.extend(entries))
    monkeypatch.setattr(tables, "begin", _Nothing, raising=False)
    audit._write()
    assert Counter(each.actor for each in written) == {"victim": 2, "flood": 2_000}
    written.clear()
    audit._write()
    assert written == []


class _Nothing:
    def __enter__(self) -> None:
        """Yield no connection."""

    def __exit__(self, *_: object) -> None:
        """Commit nothing."""
