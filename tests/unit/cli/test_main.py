import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from dovecote.cli.main import _COMMANDS, app


def test_the_version_is_the_distributions() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.output) == (0, f"dovecote {version('dovecote')}\n")


@pytest.mark.parametrize(
    "words", [["init", "--capture", "log"], ["relay", "--log-format", "log"], ["schema", "log"]]
)
def test_a_mistyped_choice_is_told_plainly(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)

    assert result.exit_code == 2
    assert ": 'log' is not one of '" in result.stderr
    assert "Value error" not in result.stderr


@pytest.mark.parametrize("command", _COMMANDS)
def test_no_command_offers_to_change_the_shell(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])

    assert result.exit_code == 0
    assert "completion" not in result.output


def test_a_command_loads_what_it_needs_and_no_other() -> None:
    heavy = (
        "import sys; print(sorted({'rich', 'starlark', 'dovecote.cli.spark', 'dovecote.cli.demo'}"
        " & {*sys.modules}))"
    )
    run = "from dovecote.cli.main import main; sys.argv = ['dovecote', 'relay', '--help']"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; {run}\ntry:\n main()\nexcept SystemExit: pass\n{heavy}",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "[]"
