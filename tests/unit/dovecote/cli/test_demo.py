"""The demo says which folder it cannot use."""

from pathlib import Path

import pytest

from dovecote.cli.demo import _folder
from outbox.errors import BadSettings


def test_the_folder_is_made_or_taken_while_it_is_empty(tmp_path: Path) -> None:
    assert _folder(tmp_path / "new" / "run") == tmp_path / "new" / "run"
    assert _folder(tmp_path / "new" / "run").is_dir()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "is not an empty folder"),
        ("file", "cannot use .*file: File exists"),
        ("file/below", "cannot use .*: Not a directory"),
        ("n" * 300, "cannot use .*: File name too long"),
    ],
)
def test_a_folder_that_cannot_be_used_is_a_bad_setting(
    tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadSettings, match=says):
        _folder(tmp_path / name)
