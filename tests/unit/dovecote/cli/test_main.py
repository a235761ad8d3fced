import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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


_BARE = "import importlib.util as u; u.find_spec = lambda name: None"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "start"), [(["schema", "relay"], ""), (["--help"], ""), (["--help"], _BARE)]
)
def test_a_full_disk_ends_a_command_with_one_line(
    words: list[str], start: str, unbuffered: str
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = _run(words, start, full, PYTHONUNBUFFERED=unbuffered)

    said = "cannot write the output: No space left on device; the output so far is incomplete"
    assert (done.returncode, done.stderr) == (1, f"dovecote: {said}\n")


@pytest.mark.parametrize("start", ["", _BARE])
def test_a_reader_that_leaves_ends_a_command_without_a_word(start: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as left:
        done = _run(["--help"], start, left)

    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_elsewhere_is_not_taken_for_that_of_the_output() -> None:
    start = (
        "import dovecote.cli.tree as tree, errno\n"
        "def app(): raise OSError(errno.ENOSPC, 'No space left on device', 'elsewhere')\n"
        "tree.app = app\n"
    )
    done = _run([], start, subprocess.PIPE)

    assert done.stderr.endswith("No space left on device: 'elsewhere'\n")


def _run(
    words: list[str], start: str, stdout: Any, **environ: str
) -> subprocess.CompletedProcess[str]:
    text = f"import sys\n{start}\nfrom dovecote.cli.main import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", text, *words],
        env={**os.environ, **environ},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=patient(60),
    )
