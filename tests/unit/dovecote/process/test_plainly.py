"""Errors of pydantic are said in plain words."""

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from dovecote.process.plainly import words


class Inner(BaseModel, extra="forbid"):
    number: int = 0


def wrong(kind: Any, value: object, own: dict[str, str] | None = None) -> str:  # any type
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    (found,) = caught.value.errors()
    return words(found["type"], found["msg"], own or {})


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Inner, {"numer": 1}, "there is no such field"),
        (Inner, 5, "must be an object"),
        (int, "x", "must be a whole number"),
        (int, 1.5, "must be a whole number"),
        (float, "x", "must be a number"),
        (bool, "x", "must be true or false"),
        (str, 5, "must be text"),
        (Annotated[str, Field(min_length=1)], "", "must not be empty"),
        (datetime, "x", "must be a time, such as 2026-02-01T09:30:00Z"),
        (AwareDatetime, "2026-02-01T09:30:00", "such as 2026-02-01T09:30:00Z: it lacks the zone"),
        (Literal["a", "b"], "c", "must be 'a' or 'b'"),
        (Annotated[int, Field(le=9)], 10, "must be less than or equal to 9"),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "must have at most 1 item, not 2"),
    ],
)
def test_each_kind_of_error_is_said_plainly(kind: object, value: object, said: str) -> None:
    assert wrong(kind, value).endswith(said)


def test_a_part_may_have_words_of_its_own() -> None:
    own = {"extra_forbidden": "there is no such setting"}
    assert wrong(Inner, {"numer": 1}, own) == "there is no such setting"
