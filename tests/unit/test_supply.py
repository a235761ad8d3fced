"""`make` installs packages by their contents, and says the truth about vulnerabilities."""

import re
import tomllib
from pathlib import Path

import pytest

from tests import audit
from tests.audit import audited, main
from tests.support.documents import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(file: Path) -> dict[str, str]:
    return {normal(name): version for name, version in PINNED.findall(file.read_text())}


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.name)
def test_every_locked_package_has_its_hashes_and_no_place(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    packages = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    # A package may be there twice: in one version for old Pythons, and in another one.
    assert len(packages) == len(PINNED.findall(text)) > 0
    for package in packages:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", package), package.splitlines()[0]
    # Another machine's mirror may have another name, and another file of the same version.
    assert not re.search(r"://|--index|--find-links|@ ", text)


def test_the_locks_agree_on_versions() -> None:
    dev = versions(ROOT / "requirements/dev.txt")
    for name in ("docs.txt", "image.txt", "demo.txt", "flights.txt"):
        for package, version in versions(ROOT / "requirements" / name).items():
            assert dev.get(package, version) == version, (name, package)


@pytest.mark.parametrize(
    ("extra", "file"),
    [("dev", "dev.txt"), ("docs", "docs.txt"), ("push", "image.txt"), ("demo", "demo.txt")],
)
def test_what_an_extra_pins_is_locked(extra: str, file: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = versions(ROOT / "requirements" / file)
    for wanted in (*project["dependencies"], *project["optional-dependencies"][extra]):
        name = re.match(r"[A-Za-z0-9._-]+", wanted)
        assert name is not None
        if normal(name[0]) == "dovecote":
            continue
        assert normal(name[0]) in locked, wanted
        if "==" in wanted:
            assert locked[normal(name[0])] == wanted.partition("==")[2].partition(";")[0].strip()


def test_make_installs_by_hash_only() -> None:
    text = (ROOT / "Makefile").read_text() + (ROOT / "compose/Dockerfile").read_text()
    for line in re.findall(r".*pip install.*|^\t\$\(INSTALL\).*", text, re.MULTILINE):
        by_hash = "--require-hashes" in line or "$(INSTALL)" in line
        assert by_hash or "--no-deps" in line, line


def report(*vulnerabilities: str) -> dict[str, object]:
    found = [{"id": each, "fix_versions": ["2.0"]} for each in vulnerabilities]
    return {"dependencies": [{"name": "some", "version": "1.0", "vulns": found}]}


SKIPPED = {"dependencies": [{"name": "some", "version": "1.0", "skip_reason": "not found"}]}


def test_an_audit_counts_what_was_looked_up_and_names_what_was_found() -> None:
    assert audited([report(), report(), SKIPPED]) == (1, [])
    assert audited([report("CVE-1"), report("CVE-1")]) == (
        1,
        ["some 1.0: CVE-1 (fixed in 2.0)"],
    )


@pytest.mark.parametrize(
    ("found", "status", "says"),
    [
        (SKIPPED, 0, "NOT DONE, no database of vulnerabilities can be reached"),
        (report(), 0, "1 packages looked up, 0 vulnerabilities"),
        (report("CVE-1"), 1, "some 1.0: CVE-1 (fixed in 2.0)"),
    ],
)
def test_only_a_vulnerability_fails_and_an_audit_that_was_not_done_says_so(
    found: dict[str, object],
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit, "_report", lambda *_: found)
    assert main(["pip-audit"]) == status
    assert says in capsys.readouterr().out


def test_an_audit_without_its_program_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere/pip-audit"]) == 0
    assert "NOT DONE, pip-audit cannot be run here" in capsys.readouterr().out
