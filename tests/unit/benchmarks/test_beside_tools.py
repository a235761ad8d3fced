"""Programs of peers are made once, and a peer that cannot be had is named in one line."""

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness
from benchmarks.beside import tools
from benchmarks.beside.figures import Figures
from benchmarks.beside.turns import Contender, Turns
from dovecote.devstack.errors import JarsDiffer, JarsMissing
from dovecote.devstack.kafka.jars import JarSet

JARS = JarSet("some-1", tools.dependencies(("org.some", "some", "1")))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOVECOTE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def a_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(stat.S_IRWXU)


def test_the_lines_of_an_ivy_file_name_each_module() -> None:
    assert JARS.dependencies == (
        '    <dependency org="org.some" name="some" rev="1" conf="default"/>\n'
    )


def test_a_folder_is_made_once_for_the_same_parts() -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "built").write_text("x")

    first = tools.made("thing", [b"a", b"b"], make)
    assert tools.made("thing", [b"a", b"b"], make) == first
    assert (first / "built").read_text() == "x"
    assert len(made) == 1
    assert tools.made("thing", [b"ab"], make) != first


def test_a_folder_whose_making_failed_is_not_there(cache: Path) -> None:
    missing = tools.PeerMissing("there is no go")

    def make(_: Path) -> None:
        raise missing

    with pytest.raises(tools.PeerMissing):
        tools.made("thing", [b"a"], make)
    assert [each.name for each in (cache / "peers").iterdir()] == ["lock"]


def test_without_go_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.PeerMissing, match=r"there is no go: install Go 1\.23 or later"):
        tools.bento()


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ("dial tcp: no such host", tools.PeerMissing),
        ("verifying module: checksum mismatch", tools.PeerFailed),
    ],
)
def test_modules_that_are_out_of_reach_are_missing_and_other_ones_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, error: type[Exception]
) -> None:
    a_program(tmp_path / "bin", "go", f"echo 'go: downloading'; echo '{told}'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(error, match=f"Bento could not be built: go: downloading {told}"):
        tools.bento()


def test_without_a_compiler_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "fetch", lambda jars: tmp_path / jars.name)
    runtime = type("Runtime", (), {"home": tmp_path, "executable": tmp_path, "options": ()})
    monkeypatch.setattr(tools, "java", runtime)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.PeerMissing, match="there is no javac: install a JDK"):
        tools.program("FlinkJob", JARS)


@pytest.mark.parametrize(
    ("raised", "error"), [(JarsMissing, tools.PeerMissing), (JarsDiffer, tools.PeerFailed)]
)
def test_jars_that_are_out_of_reach_are_missing_and_other_ones_a_failure(
    monkeypatch: pytest.MonkeyPatch, raised: type[Exception], error: type[Exception]
) -> None:
    found = raised("two\n  lines")

    def fetch(_: JarSet) -> Path:
        raise found

    monkeypatch.setattr(tools, "fetch", fetch)
    with pytest.raises(error, match="two"):
        tools.fetched(JARS)


def python(code: str) -> Sequence[str]:
    return [sys.executable, "-c", code]


def test_the_last_line_of_a_peer_is_what_it_says() -> None:
    assert tools.said(python("print('starts'); print('{\"seconds\": 2}')"), within=60) == {
        "seconds": 2
    }


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('no\\nbroker')", "it ended with 1: no broker"),
        ("print('done')", "its last line is no JSON: done"),
        ("pass", "its last line is no JSON"),
    ],
)
def test_a_peer_that_does_not_say_what_it_did_has_failed(code: str, why: str) -> None:
    with pytest.raises(tools.PeerFailed, match=why):
        tools.said(python(code), within=60)


def test_a_peer_that_takes_too_long_has_failed() -> None:
    with pytest.raises(tools.PeerFailed, match=r"not done within 0\.2 s"):
        tools.said(python("import time; time.sleep(60)"), within=0.2)


def failing(error: Exception) -> Any:
    def act(*_: object) -> Figures:
        raise error

    return act


def test_the_rest_goes_on_without_a_peer_that_is_missing_or_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(
        harness, "emit", lambda bench, **fields: lines.append({"bench": bench, **fields})
    )

    def measure(_: str) -> Figures:
        return Figures(per_s=1, cpu_us=1)

    missing, failed = tools.PeerMissing("install Go"), tools.PeerFailed("no broker")
    taken = Turns(
        "push",
        [
            Contender("ours", "in order", measure, ours=True),
            Contender("missing", "in order", measure, prepare=failing(missing)),
            Contender("fails", "in order", failing(failed)),
        ],
    )
    assert not taken.failed
    for turn in range(2):
        taken.take("place", turn)
    assert taken.failed
    assert taken.names == {"ours"}
    assert [(each["bench"], each["name"]) for each in lines] == [
        ("peers_missing", "missing"),
        ("peers", "ours"),
        ("peers_failed", "fails"),
        ("peers", "ours"),
    ]
    assert (lines[0]["why"], lines[2]["why"]) == ("install Go", "no broker")


@pytest.mark.parametrize("name", sorted(each.name for each in tools.CHECKSUMS.iterdir()))
def test_a_file_of_checksums_has_one_for_each_jar(name: str) -> None:
    lines = (tools.CHECKSUMS / name).read_text(encoding="ascii").splitlines()
    jars = [line.partition("  ") for line in lines]
    assert all(len(digest) == 64 and jar.endswith(".jar") for digest, _, jar in jars)
    assert len({jar for _, _, jar in jars}) == len(jars)
