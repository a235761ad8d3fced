"""The end of a record that a Spark job took and wrote nowhere, from what is left of its batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dedup.rules.unread import Place
from dovecote.observe.find.rules.outcome import Known, Rival, is_result, outcome

OUT = Place("clean", 0, 9)


def at(offset: int) -> Place:
    return Place("orders", 0, offset)


def won(offset: int, *, batch: int = 4, name: str = "other@/s") -> Rival:
    return Rival(at(offset), batch, name, OUT)


def known(counts: Mapping[str, int], rivals: Sequence[Rival] | None = (), **given: Any) -> Known:
    found = Known(
        at(5), "me@/s", 4, counts, rivals=rivals,
        whole=True, policy="first_match", handler=False, remembers=False,
    )  # fmt: skip
    return found._replace(**given)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (known({"filtered": 2}), "filtered"),
        (known({"filtered": 2, "handled": 1, "superseded": 3}), "filtered"),
        (known({"filtered": 2, "superseded": 3}, None), "taken"),
        (known({"filtered": 2, "superseded": 3}, [won(7)]), "filtered"),
        (known({"filtered": 2, "superseded": 3}, [won(2)]), "superseded"),
        (known({"filtered": 2, "superseded": 3}, [won(7)], policy="latest"), "superseded"),
        (known({"filtered": 2, "superseded": 3}, [won(2)], policy="latest"), "filtered"),
        (known({"duplicate": 1, "filtered": 1}, [won(2, name="me@/s")]), "duplicate"),
        (known({"duplicate": 1}, [won(2, name="me@/s")], policy="exact"), "duplicate"),
        (known({}, [won(2, batch=1, name="me@/s")], policy="exact", remembers=True), "duplicate"),
        (known({}, [won(2, batch=1, name="me@/s")], policy="exact"), "taken"),
        (known({"handler": 1}, handler=True), "handler"),
        (known({"handled": 1}, handler=True), "handled"),
        (known({"handler": 1, "handled": 1}, handler=True), "taken"),
        (known({"filtered": 1}, [won(7)], handler=True), "taken"),
        (known({"handled": 1}, whole=False), "written"),
        (known({"filtered": 1, "dead": 1}, whole=False), "taken"),
        (known({"handled": 2}, handler=True, results=[OUT, OUT]), "handled"),
        (known({}), "taken"),
    ],
)
def test_only_what_nothing_else_explains_is_said(given: Known, kind: str) -> None:
    assert outcome(given).kind == kind


def test_what_is_possible_is_said_where_it_is_not_known() -> None:
    said = outcome(known({"filtered": 1, "superseded": 1}, None)).why
    assert said.startswith("its filter said no or another record of its key won")
    assert "no marker of that batch is left" in outcome(known({})).why


def test_a_result_has_the_id_of_its_event_and_a_number() -> None:
    found = [is_result("a.b", each) for each in ("a.b.0", "a.b", "a.b.x", "c.0")]
    assert found == [True, False, False, False]
