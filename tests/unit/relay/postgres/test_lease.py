"""The active role: the same lock in every process, and given up as soon as it is in doubt."""

import threading
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from relay.errors import LeaseLost, Refused
from relay.postgres.lease import Lease, candidates_of, role_of


def test_the_role_has_the_same_name_in_every_version() -> None:
    # Another name would let two versions be active at once.
    assert role_of("shop", "orders").names == ("relay orders",)


def test_the_candidates_of_one_outbox_are_not_those_of_another() -> None:
    names = [set(candidates_of("shop", name).names) for name in ("a", "a 1", "1 a")]
    assert len(set.union(*names)) == sum(map(len, names))


def test_a_lease_holds_while_it_is_heard() -> None:
    lease = Lease(Mock(), timeout=60)
    beats = 0
    done = threading.Event()

    def beat(_: Any) -> float:
        nonlocal beats
        beats += 1
        done.set()
        return 1.0

    Lease(Mock(), timeout=0.001).keep(done, beat)
    assert beats == 1
    lease.require()


class Waits(threading.Event):
    """Never waits, and remembers for how long it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return self.is_set()


def test_a_lease_is_heard_as_soon_again_as_the_beat_asks_for() -> None:
    done, beats = Waits(), 0

    def beat(_: Any) -> float:
        nonlocal beats
        beats += 1
        if beats == 3:
            done.set()
        return (0.0, 60.0, 0.0)[beats - 1]

    Lease(Mock(), timeout=8).keep(done, beat)
    # A beat never makes it later than by itself, which is a fourth of the lease.
    assert done.seconds == [2.0, 0.0, 2.0, 0.0]


def test_a_lease_is_lost_with_its_session() -> None:
    lease = Lease(Mock(closed=True), timeout=0.001)
    lease.keep(threading.Event(), Mock(side_effect=psycopg.OperationalError("gone\nfor good")))
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost):
        lease.require()


@pytest.mark.parametrize(
    "error", [psycopg.errors.UndefinedTable("gone"), psycopg.errors.QueryCanceled("a timeout")]
)
def test_what_a_beat_meets_in_a_session_that_goes_on_is_told_as_it_is(error: Exception) -> None:
    lease = Lease(Mock(closed=False), timeout=0.001)
    lease.keep(threading.Event(), Mock(side_effect=error))
    assert lease.lost.is_set()
    with pytest.raises(type(error), match=str(error)):
        lease.require()


def test_a_mistake_in_a_beat_is_no_lost_session() -> None:
    lease = Lease(Mock(closed=False), timeout=0.001)
    lease.keep(threading.Event(), Mock(side_effect=ZeroDivisionError("one")))
    with pytest.raises(ZeroDivisionError):
        lease.require()


def test_a_lease_that_was_not_heard_for_its_time_is_in_doubt() -> None:
    with pytest.raises(LeaseLost):
        Lease(Mock(), timeout=-1).require()


def test_a_refusal_counts_while_the_role_is_ours() -> None:
    refusal = Refused("another slot")
    with pytest.raises(Refused, match="another slot"), Lease(Mock(), timeout=60).undisputed():
        raise refusal


def test_a_refusal_counts_for_nothing_once_another_may_have_had_the_role() -> None:
    conn = Mock()
    conn.execute.side_effect = psycopg.OperationalError("terminating connection")
    refusal = Refused("another slot")
    with pytest.raises(LeaseLost, match="terminating"), Lease(conn, timeout=60).undisputed():
        raise refusal
