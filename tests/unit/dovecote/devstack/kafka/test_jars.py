import hashlib
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dovecote.devstack.errors import JarsDiffer, JarsMissing, StackError
from dovecote.devstack.kafka import jars as subject
from dovecote.devstack.kafka.jars import JarSet, fetch, kafka_jars
from dovecote.devstack.kafka.java import JavaRuntime
from dovecote.devstack.postgres.programs import archive_of
from dovecote.devstack.progress import Fetched
from dovecote.devstack.versions import KAFKA
from tests.support.waiting import patient

SET = JarSet("some", '    <dependency org="org" name="one" rev="1"/>\n')

# Behaves like Ivy, as far as that is visible: lines, jars, exit status.
IVY = """\
import os, pathlib, sys
root = pathlib.Path(os.environ["FAKE_IVY"])
arguments = dict(zip(sys.argv, sys.argv[1:]))
(root / "runs").open("a").write(arguments["-settings"] + "\\n")
folder = pathlib.Path(arguments["-retrieve"]).parent
folder.mkdir()
print("\\tfound org#one;1 in central")
print("\\tfound org#two;1 in central")
for name in ("one", "two"):
    (folder / f"{name}-1.jar").write_text(name)
    print("........ (2048kB)")
    print(f"\\t[SUCCESSFUL ] org#{name};1!{name}.jar (9ms)", flush=True)
    if (root / "fails").exists():
        print("Server access error", file=sys.stderr)
        sys.exit(1)
"""


class FakeIvy:
    def __init__(self, root: Path) -> None:
        self._root = root

    def fails(self) -> None:
        (self._root / "fails").touch()

    def works_again(self) -> None:
        (self._root / "fails").unlink()

    @property
    def settings_of_runs(self) -> list[str]:
        runs = self._root / "runs"
        return runs.read_text().splitlines() if runs.exists() else []


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    program = tmp_path / "ivy.py"
    program.write_text(IVY)
    executable = tmp_path / "java"
    executable.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}" "$@"\n')
    executable.chmod(0o755)
    monkeypatch.setattr(subject, "java", lambda: JavaRuntime(executable, tmp_path))
    monkeypatch.setenv("DOVECOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_IVY", str(tmp_path))
    monkeypatch.delenv("DOVECOTE_IVY_SETTINGS", raising=False)
    return FakeIvy(tmp_path)


def ignore(_: Fetched) -> None:
    """Do nothing: nobody watches."""


def test_jars_are_fetched_once(ivy: FakeIvy) -> None:
    folder = fetch(SET, ignore)

    assert {jar.name for jar in folder.iterdir()} == {"one-1.jar", "two-1.jar"}
    assert fetch(SET, ignore) == folder
    assert len(ivy.settings_of_runs) == 1


def test_other_dependencies_are_another_folder(ivy: FakeIvy) -> None:
    other = JarSet("some", '    <dependency org="org" name="one" rev="2"/>\n')

    assert fetch(SET, ignore) != fetch(other, ignore)
    assert len(ivy.settings_of_runs) == 2


def test_a_download_that_failed_half_way_leaves_no_folder(ivy: FakeIvy) -> None:
    ivy.fails()
    with pytest.raises(JarsMissing):
        fetch(SET, ignore)
    assert [left.name for left in SET.folder().parent.iterdir()] == ["lock"]

    ivy.works_again()

    assert len(list(fetch(SET, ignore).iterdir())) == 2


def test_what_a_killed_download_left_does_not_pass_as_jars_and_goes(ivy: FakeIvy) -> None:
    left = SET.folder().parent / "partial-killed"
    (left / "jars").mkdir(parents=True)
    (left / "jars/one-1.jar").touch()

    folder = fetch(SET, ignore)

    assert len(list(folder.iterdir())) == 2
    assert not left.exists()
    assert len(ivy.settings_of_runs) == 1


def test_one_of_several_at_once_fetches_and_the_others_wait(ivy: FakeIvy) -> None:
    folders: list[Path] = []
    threads = [
        threading.Thread(target=lambda: folders.append(fetch(SET, ignore))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(30))

    assert folders == [SET.folder()] * 4
    assert len(ivy.settings_of_runs) == 1


def test_the_error_says_what_happened_and_what_to_do_offline(ivy: FakeIvy) -> None:
    ivy.fails()

    with pytest.raises(JarsMissing) as caught:
        fetch(SET, ignore)

    told = str(caught.value)
    assert "the jars of some could not be fetched (Ivy ended with 1)" in told
    assert "DOVECOTE_IVY_SETTINGS" in told
    assert f"copy {SET.folder()} from there" in told
    assert told.endswith("Server access error")


def test_progress_tells_what_came_so_far(ivy: FakeIvy) -> None:
    told: list[Fetched] = []

    fetch(SET, told.append)

    assert told[0] == Fetched("some", modules=0, jars=0, megabytes=0.0)
    assert told[-1] == Fetched("some", modules=2, jars=2, megabytes=4.0)
    assert len(ivy.settings_of_runs) == 1


def test_settings_of_the_site_take_the_place_of_ours(
    ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVECOTE_IVY_SETTINGS", "/etc/site/ivysettings.xml")

    fetch(SET, ignore)

    assert ivy.settings_of_runs == ["/etc/site/ivysettings.xml"]


def test_jars_are_named_by_coordinates_alone() -> None:
    for text in (subject._SETTINGS, kafka_jars().ivy_file(), archive_of("15").ivy_file()):
        assert "://" not in text


def listed(tmp_path: Path, **jars: str) -> JarSet:
    """Return the set with checksums, as `sha256sum` writes them."""
    file = tmp_path / "some.sha256"
    lines = [
        f"{hashlib.sha256(content.encode()).hexdigest()}  {name}-1.jar\n"
        for name, content in jars.items()
    ]
    file.write_text("".join(lines))
    return replace(SET, checksums=file)


def test_jars_with_the_checksums_of_the_list_are_used(ivy: FakeIvy, tmp_path: Path) -> None:
    assert len(list(fetch(listed(tmp_path, one="one", two="two"), ignore).iterdir())) == 2
    assert len(ivy.settings_of_runs) == 1


@pytest.mark.parametrize(
    ("jars", "says"),
    [
        ({"one": "one", "two": "changed"}, "two-1.jar is sha256 "),
        ({"one": "one"}, "two-1.jar is sha256 "),
        ({"one": "one", "two": "two", "zwo": "zwo"}, "zwo-1.jar is not there"),
    ],
)
def test_other_jars_are_refused_and_not_kept(
    ivy: FakeIvy, tmp_path: Path, jars: dict[str, str], says: str
) -> None:
    wanted = listed(tmp_path, **jars)
    with pytest.raises(JarsDiffer, match="Nothing of them is used") as refused:
        fetch(wanted, ignore)
    assert says in str(refused.value)
    assert not wanted.folder().exists()
    assert len(ivy.settings_of_runs) == 1


@pytest.mark.usefixtures("ivy")
def test_one_jar_of_a_list_may_be_wanted_alone(tmp_path: Path) -> None:
    listed(tmp_path, one="one", two="two", three="three")
    wanted = replace(SET, checksums=tmp_path / "some.sha256", only="one-1.jar")

    with pytest.raises(JarsDiffer, match=r"two-1\.jar is sha256 .* should be no such jar"):
        fetch(wanted, ignore)


@pytest.mark.parametrize("version", KAFKA.revisions)
def test_the_jars_of_a_broker_are_listed(version: str) -> None:
    checksums = kafka_jars(version).checksums
    assert checksums is not None
    names = [line.partition("  ")[2] for line in checksums.read_text().splitlines()]
    assert f"kafka_2.13-{KAFKA.revisions[version]}.jar" in names
    assert len(names) == len(set(names))
    # A machine puts an archive of the classes beside them.
    assert [name for name in names if not name.endswith(".jar")] == []


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("version", ["15", "16", "17"])
def test_the_archives_of_postgres_are_listed(
    monkeypatch: pytest.MonkeyPatch, version: str, system: str, machine: str
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    archive = archive_of(version)
    assert archive.checksums is not None
    names = [line.partition("  ")[2] for line in archive.checksums.read_text().splitlines()]
    assert names.count(str(archive.only)) == 1


@pytest.mark.parametrize(("version", "machine"), [("15", "riscv64"), ("14", "aarch64")])
def test_a_machine_that_has_no_archive_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, machine: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(StackError, match=f"no Postgres {version} for linux on {machine}; the wh"):
        archive_of(version)
