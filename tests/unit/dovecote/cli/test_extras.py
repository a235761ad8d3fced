"""A package of an extra that is missing: the advice, and no advice for a module of ours."""

import tempfile
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.cli import demo, stack
from dovecote.cli.extras import needs, require
from dovecote.cli.main import app
from dovecote.cli.spark import environment
from outbox.errors import BadSettings


def test_a_missing_package_is_answered_with_the_extra_that_brings_it() -> None:
    with (
        pytest.raises(BadSettings, match=r"^x needs not_there: pip install 'dovecote\[spark\]'$"),
        needs("spark", user="x"),
    ):
        import_module("not_there")
    with pytest.raises(BadSettings, match=r"^x needs a_b, c_d: pip install 'dovecote\[push\]'$"):
        require("a_b", "typer", "c_d", extra="push", user="x")
    require("typer", extra="push", user="x")


@pytest.mark.parametrize("name", ["dovecote.not_there", "relay.not_there"])
def test_a_missing_module_of_ours_is_a_bug_and_no_extra_is_advised(name: str) -> None:
    with pytest.raises(ModuleNotFoundError), needs("spark", user="x"):
        import_module(name)


@pytest.mark.parametrize("name", ["detached", "cutting"])
def test_the_stack_finds_its_modules(name: str) -> None:
    found = stack._detached(name)
    assert found.__name__ == f"dovecote.devstack.{name}"


def test_a_stack_that_never_ran_has_no_status(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["stack", "status", "--directory", str(tmp_path / "stack")])
    assert (result.exit_code, result.output.partition(";")[0]) == (1, "nothing was started here")


def test_a_demo_without_its_wheels_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_NEEDED", ("json", "not_there"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for more in ([], ["--keep", str(tmp_path / "kept")]):
        result = CliRunner().invoke(app, ["demo", *more])
        assert str(result.exception) == "the demo needs not_there: pip install 'dovecote[demo]'"
        assert isinstance(result.exception, BadSettings)
    assert not [*tmp_path.iterdir()]


def test_a_pyspark_without_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "version", lambda _: "4.1.4")
    with pytest.raises(
        BadSettings, match=r"PySpark 4\.1\.4 is too old: Dovecote needs PySpark 4\.2"
    ):
        environment.require_spark()

    monkeypatch.setattr(environment, "version", lambda _: "4.10.0")
    environment.require_spark()
