"""An error of a setting is in our words, and not in those of the library that found it."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from dovecote.process.settings.loading import load
from dovecote.process.settings.models import Settings
from outbox import BadSettings


class Sorts(Settings):
    topics: Sequence[str] = ()
    names: tuple[str, ...] = ()
    count: int = 0
    share: float = 0.0
    is_on: bool = False
    since: datetime | None = None
    folder: Path = Path()
    mode: Literal["this", "that"] = "this"
    few: tuple[int, ...] = Field(default=(), min_length=1, max_length=2)
    word: str = Field(default="a", max_length=3, pattern="^[a-z]*$")


@pytest.mark.parametrize(
    ("toml", "environ", "says"),
    [
        ('topics = "orders"', {}, 'topics: must be a list, such as ["a", "b"]'),
        (
            "",
            {"X_TOPICS": "orders"},
            'topics: must be a list, such as ["a", "b"] (set by X_TOPICS)',
        ),
        ("topics = 3", {}, 'topics: must be a list, such as ["a", "b"]'),
        ('names = "a"', {}, 'names: must be a list, such as ["a", "b"]'),
        ('count = "x"', {}, "count: must be a whole number"),
        ("count = 1.5", {}, "count: must be a whole number"),
        ('share = "x"', {}, "share: must be a number"),
        ("is_on = 3", {}, "is_on: must be true or false"),
        ('is_on = "perhaps"', {}, "is_on: must be true or false"),
        ('since = "soon"', {}, "since: must be a time, such as 2026-02-01T09:30:00Z"),
        ("folder = 3", {}, "folder: must be the path of a file"),
        ('mode = "x"', {}, "mode: must be 'this' or 'that'"),
        ("few = [1, 2, 3]", {}, "few: must have at most 2 items, not 3"),
        ('word = "long"', {}, "word: must have at most 3 characters"),
        ('word = "A"', {}, "word: must match pattern '^[a-z]*$'"),
        ("word = 3", {}, "word: must be text"),
    ],
)
def test_what_is_wrong_is_said_in_our_words(
    tmp_path: Path, toml: str, environ: dict[str, str], says: str
) -> None:
    file = tmp_path / "sorts.toml"
    file.write_text(toml, encoding="utf-8")
    with pytest.raises(BadSettings) as refused:
        load(Sorts, file, prefix="X", environ=environ)
    assert str(refused.value).splitlines()[1:] == [f"  {says}"]


def test_a_file_that_points_to_a_variable_is_blamed_itself(tmp_path: Path) -> None:
    file = tmp_path / "sorts.toml"
    file.write_text('dsn = { env = "DOVECOTE_DSN" }', encoding="utf-8")
    with pytest.raises(BadSettings, match=r"dsn: there is no such setting \(set in .*sorts.toml"):
        load(Sorts, file, prefix="X", environ={"DOVECOTE_DSN": "here"})
