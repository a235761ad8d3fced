import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app
from tests.support.waiting import patient


def test_the_version_is_the_distributions() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.output) == (0, f"dovecote {version('dovecote')}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["init", "outbox", "--capture", "log"],
        ["relay", "run", "--log-format", "log"],
        ["schema", "log"],
    ],
)
def test_a_mistyped_choice_is_told_plainly(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)

    assert result.exit_code == 2
    assert ": 'log' is not one of '" in result.stderr
    assert "Value error" not in result.stderr


def test_completion_is_offered_once_and_knows_the_commands_of_a_group() -> None:
    assert "--show-completion" in CliRunner().invoke(app, ["--help"]).output
    assert "completion" not in CliRunner().invoke(app, ["relay", "--help"]).output
    asked = {"_DOVECOTE_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", "from dovecote.cli.main import app; app(prog_name='dovecote')"],
        env={**os.environ, **asked, "COMP_WORDS": "dovecote relay re"},
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(60),
    )
    assert done.stdout.split() == ["reshard", "reconcile"]


def test_a_command_loads_what_it_needs_and_no_other() -> None:
    ours = {f"dovecote.cli.{name}" for name in ("spark", "demo", "relay.parked")}
    assert all(find_spec(name) for name in ours)
    names = {"rich", "starlark", *ours}
    heavy = f"import sys; print(sorted({names} & {{*sys.modules}}))"
    run = "from dovecote.cli.main import main; sys.argv = ['dovecote', 'relay', 'run', '--help']"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; {run}\ntry:\n main()\nexcept SystemExit: pass\n{heavy}",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(60),
    )
    assert done.stdout.splitlines()[-1] == "[]"
