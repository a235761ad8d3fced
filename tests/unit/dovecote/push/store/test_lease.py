"""A lease is held or given up, and never both."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from dovecote.push.store.lease import Lease


@pytest.fixture
def lease() -> Lease:
    made = Lease("", "push", "slack")
    made._conn = Mock()
    return made


def taken(meanwhile: Callable[[], None]) -> Callable[[], bool]:
    """Return what takes it from Postgres while something happens."""

    def take() -> bool:
        meanwhile()
        return True

    return take


def test_giving_up_while_it_is_taken_leaves_it_to_others(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn = lease._conn
    assert isinstance(conn, Mock)
    monkeypatch.setattr(lease, "_taken", taken(lease.give_up))

    assert not lease.take(Mock())

    conn.close.assert_called_once()


def test_giving_up_too_late_keeps_it_until_it_is_released(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn = lease._conn
    assert isinstance(conn, Mock)
    monkeypatch.setattr(lease, "_taken", taken(lambda: None))
    assert lease.take(Mock())

    lease.give_up()

    assert not lease._ends.is_set()
    lease.close()
    conn.close.assert_called_once()
