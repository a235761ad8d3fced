"""Letters have an order at any time and place, however odd."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dovecote.observe.dead.order import Before, numbers_of
from dovecote.observe.dead.pushed import PushPart
from dovecote.observe.dead.shapes import Selection
from dovecote.observe.sources import PushSource
from dovecote.push.client import Api


@pytest.mark.parametrize(
    ("place", "numbers"),
    [
        ("orders.dead/0/42", (0, 42)),
        ("orders.dead/0/9223372036854775808", None),
        ("orders.dead/9999999999/1", None),
        (f"orders.dead/0/{'9' * 5_000}", None),
        ("0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10", None),
    ],
)
def test_a_place_that_kafka_cannot_have_is_none(
    place: str, numbers: tuple[int, int] | None
) -> None:
    assert numbers_of(place) == numbers


def test_a_page_may_end_at_the_last_moment_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(_: Api, method: str, path: str, body: object = None) -> Any:
        asked.append(f"{method} {path} {body}")
        if path == "/subscriptions":
            return [{"id": "s", "counts": {"dead": 1}}]
        return {"letters": [], "looked": 0, "whole": True, "oldest": None}

    monkeypatch.setattr(Api, "__call__", answer)
    part = PushPart("push/main", PushSource(url="http://127.0.0.1:1"))
    last = Before(datetime.max.replace(tzinfo=UTC), "push/other", "other.dead/0/1")
    assert [each.said for each in part.newest(Selection(), 5, last)]  # type: ignore[union-attr]  # it fails nowhere
    assert "before=9999-12-31T23%3A59%3A59.999999" in asked[-1]
