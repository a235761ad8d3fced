"""The command that measures all kinds of work, each in a process of its own."""

import json
import stat
import sys
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.beside.figures import FAILED, MEASURED, parsed

OURS = {"name": "dovecote", "ours": True, "promise": "in order per key", "cpu_us": 10.0}
PEER = {"name": "bento", "ours": False, "promise": "no order", "cpu_us": 5.0}


class Child:
    """Takes the place of Python, and prints what the work with a name should print."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        program = folder / "python"
        program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n. {folder}/"$3"\n')
        program.chmod(stat.S_IRWXU)
        monkeypatch.setattr(sys, "executable", str(program))
        self._monkeypatch = monkeypatch

    def prints(self, work: str, *lines: object, status: int = 0) -> None:
        told = [each if isinstance(each, str) else json.dumps(each) for each in lines]
        script = "".join(f"cat <<'END'\n{each}\nEND\n" for each in told)
        (self._folder / work).write_text(f"{script}exit {status}\n")

    def asked(self) -> list[str]:
        return (self._folder / "asked").read_text().splitlines()

    def run(self, *arguments: str) -> int:
        self._monkeypatch.setattr(sys, "argv", ["peers", *arguments])
        return peers.main()


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    return Child(tmp_path, monkeypatch)


def measured(**fields: object) -> dict[str, object]:
    return {"bench": MEASURED, "work": "push", "per_s": 100, **fields}


def printed(capsys: pytest.CaptureFixture[str], bench: str) -> list[dict[str, object]]:
    found = [parsed(text) for text in capsys.readouterr().out.splitlines()]
    return [dict(line) for line in found if line is not None and line["bench"] == bench]


def test_each_kind_of_work_is_told_what_is_wanted(child: Child) -> None:
    child.prints("push")
    child.prints("dedup")
    assert child.run("--only", "push", "dedup", "--rounds", "2", "--records", "9", "--rates") == 0
    wanted = '{"rounds": 2, "records": 9, "rates": []}'
    assert child.asked() == [
        f"-m benchmarks.beside push {wanted}",
        f"-m benchmarks.beside dedup {wanted}",
    ]


def test_a_ratio_comes_after_all_measurements(
    child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    child.prints("push", measured(**OURS), "a word of a library", measured(**PEER))
    assert child.run("--only", "push") == 0
    (ratio,) = printed(capsys, "peers_ratio")
    assert (ratio["work"], ratio["peer"], ratio["rate"], ratio["cpu"]) == ("push", "bento", 1, 2)


def test_what_a_peer_loses_is_said_and_fails_nothing(
    child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    child.prints("push", measured(**OURS), measured(**PEER, lost=3))
    assert child.run("--only", "push") == 0
    (fault,) = printed(capsys, "peers_fault")
    assert (fault["name"], fault["lost"]) == ("bento", 3)


def test_a_record_that_ours_loses_fails_the_command(child: Child) -> None:
    child.prints("push", measured(**OURS, lost=1))
    assert child.run("--only", "push") == 1


def test_a_contender_that_failed_fails_the_command(child: Child) -> None:
    child.prints("push", {"bench": FAILED, "work": "push", "name": "bento", "why": "no broker"})
    assert child.run("--only", "push") == 1


def test_the_rest_goes_on_after_a_kind_of_work_that_failed(
    child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    child.prints("push", status=3)
    child.prints("dedup", measured(work="dedup", **OURS), measured(work="dedup", **PEER))
    assert child.run("--only", "push", "dedup") == 1
    told = capsys.readouterr()
    assert "push has failed with 3, see above" in told.err
    assert '"peers_ratio", "work": "dedup"' in told.out


@pytest.mark.parametrize("number", ["0", "-1"])
def test_a_number_of_rounds_is_above_0(
    child: Child, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    with pytest.raises(SystemExit):
        child.run("--rounds", number)
    assert f"{number} is not above 0" in capsys.readouterr().err
