"""The state of held records outlives the consumer that held them."""

import psycopg
import pytest

from dedup.inbox.held import PostgresStates
from dedup.retries.held_states import NotKept
from dedup.rules.record import Record
from outbox.envelope import ID, Delivery

RECORD = Record("orders", 3, 44, 0, b"k", b"{}", [(ID, b"e1")])
WENT_THROUGH = Delivery(
    attempt=3, round=1, first_seen=5, not_before=9, error="no \0 luck", origin="orders/1/2"
)


def test_a_state_is_found_by_whoever_has_the_partition_next(inbox: str) -> None:
    first, second = PostgresStates(inbox, "billing"), PostgresStates(inbox, "billing")
    other = PostgresStates(inbox, "shipping")
    first.keep(RECORD, Delivery(attempt=2, first_seen=5, not_before=7))
    first.keep(RECORD, WENT_THROUGH)
    first.keep(RECORD._replace(partition=4), WENT_THROUGH)

    ((place, state),) = second.load([("orders", 3), ("other", 4)]).items()
    assert (place, state.event) == (RECORD[:3], "e1@orders")
    assert state.delivery.error == r"no \x00 luck"
    assert state.delivery.origin == "orders/1/2"
    assert (state.delivery.attempt, state.delivery.not_before) == (3, 9)
    assert other.load([("orders", 3)]) == {}

    second.drop(RECORD)
    assert first.load([("orders", 3)]) == {}
    for each in (first, second, other):
        each.close()


@pytest.mark.parametrize(
    "state",
    [Delivery(attempt=2**31), Delivery(round=-(2**40)), Delivery(first_seen=2**63)],
)
def test_a_history_that_no_column_holds_is_never_asked_to_be_kept_again(
    inbox: str, state: Delivery
) -> None:
    states = PostgresStates(inbox, "billing")
    with pytest.raises(NotKept, match=r"history cannot be kept: Postgres: .* out of range"):
        states.keep(RECORD, state)
    states.keep(RECORD, WENT_THROUGH)
    states.close()


def test_nobody_waits_for_a_database_that_is_away(
    inbox: str, caplog: pytest.LogCaptureFixture
) -> None:
    away = PostgresStates(psycopg.conninfo.make_conninfo(inbox, port=1), "billing")

    away.keep(RECORD, WENT_THROUGH)
    away.drop(RECORD)

    assert away.load([("orders", 3)]) == {}
    assert "attempts of held records are not kept" in caplog.text
