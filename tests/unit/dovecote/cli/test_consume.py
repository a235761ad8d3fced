"""`dovecote consume run`: what it says before anything runs."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app
from outbox import BadSettings

SETTINGS = 'topics = ["orders"]\ngroup = "g"\n[kafka]\n"bootstrap.servers" = "b:9092"\n'
HANDLER = ["--handler", "os.path:exists"]


def check(tmp_path: Path, text: str, *more: str) -> tuple[int, str, BaseException | None]:
    file = tmp_path / "consume.toml"
    file.write_text(text)
    shown = CliRunner().invoke(app, ["consume", "run", "--check", "-c", str(file), *more])
    return shown.exit_code, shown.output, shown.exception


def test_check_validates_and_starts_nothing(tmp_path: Path) -> None:
    code, said, _ = check(tmp_path, SETTINGS, *HANDLER)
    assert (code, said) == (0, "settings are valid: group 'g', exact\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("speed = 1\n" + SETTINGS, "speed: there is no such setting"),
        (SETTINGS + '"group.id" = "x"\n', "group.id cannot be set: say `group`"),
        (SETTINGS + '"lingre.ms" = 1\n', "lingre.ms"),
        ('value = "avro"\n' + SETTINGS, "needs a table `registry`"),
        ('message = "a:B"\n' + SETTINGS, "need each other"),
        ('policy = "first_match"\nhandler_batch = 2\n' + SETTINGS, "handler_batch must be 1"),
        ('drain = "0s"\n' + SETTINGS, "drain: must be longer than 0"),
        ('filter = "value.amount >"\n' + SETTINGS, "value.amount >"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(tmp_path: Path, text: str, says: str) -> None:
    _, _, error = check(tmp_path, text, *HANDLER)
    assert isinstance(error, BadSettings)
    assert says in str(error)


def test_a_handler_is_needed_and_looked_for(tmp_path: Path) -> None:
    _, _, error = check(tmp_path, SETTINGS)
    assert "give --handler module:function" in str(error)
    _, _, error = check(tmp_path, SETTINGS, "--handler", "os.path:nowhere")
    assert "os.path:nowhere" in str(error)
    assert check(tmp_path, 'handler = "os.path:exists"\n' + SETTINGS)[0] == 0
