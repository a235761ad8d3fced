"""Findings say which event it is and what to do."""

import pytest

from dovecote.audit.rules.finding import ADVICE, Finding, Kind, shown_key


def finding(kind: Kind, id_: str = "a") -> Finding:
    return Finding(
        kind=kind,
        part="outbox/shop",
        topic="t",
        id=id_,
        key=None,
        at=1,
        places=("t/0/1",),
        reason="r",
    )


@pytest.mark.parametrize("kind", ADVICE)
def test_each_kind_has_advice_and_a_name_of_its_event(kind: Kind) -> None:
    assert finding(kind).as_json()["do"] == ADVICE[kind]
    assert (finding(kind).name == finding(kind, "b").name) is (kind == "late")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (None, None),
        (b"", ""),
        ("ä".encode(), "ä"),
        (b"\xff\x00", "0xff00"),
        (b"a\nb", "'a\\nb'"),
        (b"x" * 300, "'" + "x" * 199),
    ],
)
def test_a_key_is_shown_as_text_that_is_not_long(key: bytes | None, shown: str | None) -> None:
    assert shown_key(key) == shown
