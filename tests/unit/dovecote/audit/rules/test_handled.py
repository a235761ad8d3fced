"""The auditor knows the event of a record as an inbox does, and what has become of it."""

import pytest

from dedup.rules import identity as inboxes
from dedup.rules.record import Record
from dovecote.audit.rules.handled import Passed, aside, missing, passed, stored

Headers = list[tuple[str, bytes]]


def raw(headers: Headers) -> tuple[int, int, int, int, bytes, bytes, Headers]:
    return (0, 1, 2, 3, b"k", b"{}", headers)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("ce_id", b"a"), ("ce_source", b"/shop")], id="plain"),
        pytest.param([("ce_id", b"a")], id="no source"),
        pytest.param([("ce_id", b"a"), ("ce_source", b"")], id="an empty source"),
        pytest.param([("ce_id", b"a@b"), ("ce_source", b"x@y%z")], id="signs in it"),
        pytest.param([("ce_id", b"a"), ("ce_id", b"b"), ("ce_source", b"s")], id="two ids"),
        pytest.param([("ce_id", b""), ("ce_id", b"b"), ("ce_source", b"s")], id="one is empty"),
        pytest.param([("ce_id", b"i" * 600), ("ce_source", b"s" * 200)], id="long"),
        pytest.param(
            [("ce_id", "ä".encode() * 500), ("ce_source", b"s" * 100)], id="not too long"
        ),
        pytest.param([("ce_id", b"a\0b"), ("ce_source", b"s\0")], id="zeros"),
        pytest.param(
            [("ce_id", b"a"), ("ce_source", b"s"), ("dovecote_round", b"3")], id="a third round"
        ),
        pytest.param(
            [("ce_id", b"a"), ("dovecote_origin", b"orders/0/7"), ("dovecote_round", b"1")],
            id="a copy without a source",
        ),
        pytest.param([("ce_id", b"a"), ("dovecote_origin", b"orders")], id="no place of origin"),
    ],
)
def test_an_event_has_the_name_that_inboxes_give_it(headers: Headers) -> None:
    found = passed(raw(headers), "retry")
    own = inboxes.identity(Record("retry", 1, 2, 3, b"k", b"{}", headers))
    assert found is not None
    assert (found.id, found.round) == (inboxes.stored(own), own.round)
    assert found[:4] == (0, 1, 2, 3)


@pytest.mark.parametrize("headers", [[], [("ce_id", b"")], [("ce_source", b"s")]])
def test_a_record_without_an_id_is_not_compared(headers: Headers) -> None:
    assert passed(raw(headers), "orders") is None


def test_what_became_of_a_letter_is_no_letter() -> None:
    letter = [("ce_id", b"a"), ("ce_source", b"s"), ("dovecote_group", b"g")]
    found = aside(raw(letter), "dead")
    assert found is not None
    assert (found.id, found.group, found.at) == ("a@s", "g", 3)
    assert aside(raw([*letter, ("dovecote_resolves", b"dead/0/1")]), "dead") is None
    plain = aside(raw(letter[:2]), "dead")
    assert plain is not None
    assert plain.group is None


ONE = stored("a", "s")


@pytest.mark.parametrize(
    ("round_", "handled", "copies", "is_missing"),
    [
        pytest.param(0, [], [], True, id="nothing has it"),
        pytest.param(0, [(ONE, 0)], [], False, id="handled"),
        pytest.param(0, [(ONE, 1)], [], True, id="handled in another round alone"),
        pytest.param(0, [(stored("a", "t"), 0)], [], True, id="another source"),
        pytest.param(0, [], [(1, False)], False, id="it waits on a retry topic"),
        pytest.param(0, [], [(1, True)], False, id="a dead letter of a later round"),
        pytest.param(1, [], [(1, False)], True, id="the copy is the record itself"),
        pytest.param(1, [], [(2, False), (1, False)], False, id="it failed again"),
        pytest.param(1, [], [(1, True)], False, id="a dead letter"),
    ],
)
def test_a_record_is_missing_if_neither_the_inbox_nor_a_copy_has_it(
    round_: int,
    handled: list[tuple[str, int]],
    copies: list[tuple[int, bool]],
    *,
    is_missing: bool,
) -> None:
    one = Passed(0, 0, 5, 0, ONE, round_, b"k")
    assert missing([one], handled, {ONE: copies}) == ([one] if is_missing else [])
