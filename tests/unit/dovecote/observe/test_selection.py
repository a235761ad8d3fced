"""Records are selected by what a person knows of an event."""

import pytest

from dedup.rules.record import Record
from dovecote.observe.rules.selection import selection
from outbox.envelope import ID, SOURCE, TIME, TYPE, Pair
from outbox.errors import BadSettings

HEADERS: tuple[Pair, ...] = (
    (ID, b"e1"),
    (SOURCE, b"/shop"),
    (TYPE, b"order.placed"),
    (TIME, b"2026-02-01T12:00:00Z"),
)
ORDER = Record("orders", 0, 7, 1_700_000_000_000, b"k", b'{"total": 120}', HEADERS)
FOREIGN = Record("orders", 0, 8, 1_700_000_000_000, None, b"\xff", ())
BROKEN = Record("orders", 0, 9, 1_700_000_000_000, b"k", b"{", ((TIME, b"never"),))


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"key": "k"},
        {"id_": "e1"},
        {"type_": "order.placed", "source": "/shop"},
        {"where": "value.total > 100"},
        {"key": "k", "where": 'key == "k"'},
    ],
)
def test_all_that_is_asked_for_must_hold(wanted: dict[str, str]) -> None:
    assert selection(**wanted).selects(ORDER)


@pytest.mark.parametrize(
    "wanted",
    [
        {"key": "other"},
        {"id_": "e2"},
        {"type_": "order.paid"},
        {"source": "/other"},
        {"where": "value.total > 200"},
        {"where": "value.missing > 200"},
        {"key": "k", "id_": "e2"},
    ],
)
def test_what_differs_or_cannot_be_decided_is_not_selected(wanted: dict[str, str]) -> None:
    assert not selection(**wanted).selects(ORDER)


def test_an_event_without_an_id_is_found_by_its_place() -> None:
    assert selection(id_="orders/0/8").selects(FOREIGN)
    assert selection().selects(FOREIGN)
    assert not selection(key="k").selects(FOREIGN)


def test_a_record_that_cannot_be_read_is_selected_by_key_and_by_nothing_inside() -> None:
    assert selection(key="k").selects(BROKEN)
    assert not selection(type_="kafka.record").selects(BROKEN)
    assert not selection(where="True").selects(BROKEN)


def test_a_key_is_found_by_its_bytes_as_a_shell_gives_them() -> None:
    given = b"k\xff".decode(errors="surrogateescape")
    assert selection(key=given).selects(ORDER._replace(key=b"k\xff"))


def test_a_filter_that_is_none_is_refused_before_anything_is_read() -> None:
    with pytest.raises(BadSettings, match="filter"):
        selection(where="value.total >")
