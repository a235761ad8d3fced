import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.cli.tree import app
from dovecote.devstack.detached import Member, StackState
from dovecote.devstack.processes import Process

ELSEWHERE = {"PGSERVICE": "production", "PGHOSTADDR": "192.0.2.7", "PGSSLMODE": "require"}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stack that seems to run, for a user whose variables name another server."""
    me = Process.of(os.getpid())
    assert me is not None
    dsn = "host=127.0.0.1 port=15432 user=postgres password=p dbname=postgres"
    one = Member(address=dsn, server=me, keeper=me)
    StackState(directory=tmp_path, members={"postgres": one, "kafka": one}).write(tmp_path)
    for name, value in ELSEWHERE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PGAPPNAME", "mine")
    return tmp_path


def test_psql_goes_to_the_stack_whatever_server_the_variables_name(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Mapping[str, str]] = []

    def execve(_: str, __: Sequence[str], environ: Mapping[str, str]) -> None:
        runs.append(environ)

    monkeypatch.setattr(os, "execve", execve)

    CliRunner().invoke(app, ["stack", "psql", "--directory", str(running)])

    (environ,) = runs
    assert environ["PGPORT"] == "15432"
    assert environ["PGAPPNAME"] == "mine"
    assert not ELSEWHERE.keys() & environ.keys()


def test_a_shell_with_the_variables_of_another_server_unsets_them(running: Path) -> None:
    told = CliRunner().invoke(app, ["stack", "env", "--directory", str(running)]).stdout

    unset = {line.removeprefix("unset ") for line in told.splitlines() if line[:6] == "unset "}
    assert unset == ELSEWHERE.keys()
