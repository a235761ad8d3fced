from importlib.metadata import version

from typer.testing import CliRunner

from cli.main import app


def test_the_version_is_the_distributions() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.output) == (0, f"dovecote {version('dovecote')}\n")
