import subprocess
import sys
from importlib.metadata import version

from typer.testing import CliRunner

from cli.main import app


def test_the_version_is_the_distributions() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.output) == (0, f"dovecote {version('dovecote')}\n")


def test_a_command_loads_what_it_needs_and_no_other() -> None:
    heavy = (
        "import sys; print(sorted({'rich', 'starlark', 'cli.spark', 'cli.demo'} & {*sys.modules}))"
    )
    run = "from cli.main import main; sys.argv = ['dovecote', 'relay', '--help']"
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
