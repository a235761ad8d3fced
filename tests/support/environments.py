"""Environments of what an extra installs and nothing else, in a moment and without a network."""

import re
import subprocess
import sys
import tomllib
import venv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement

from tests.support.documents import ROOT
from tests.support.waiting import patient

OURS = "dovecote"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with the wheel in it."""

    python: Path

    def run(
        self, *words: str, given: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run its Python, in isolation and with no variables but `environ`."""
        return subprocess.run(
            [str(self.python), "-I", *words],
            input=given,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", **environ},
            cwd=self.python.parent,
            timeout=patient(120),
            check=False,
        )

    def dovecote(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "dovecote", *words, **environ)


def built(folder: Path) -> Path:
    """Return the wheel of this tree, which is made in `folder`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpacked(wheel: Path, folder: Path) -> Path:
    """Return the folder in which the wheel is installed, alone."""
    install = ("install", "--quiet", "--no-deps", "--no-index", "--target", str(folder))
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel)], check=True)
    return folder


def environment(folder: Path, ours: Path, extra: str) -> Environment:
    """Make an environment of the unpacked wheel `ours` and of what `extra` needs; "" is none."""
    venv.create(folder, symlinks=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    for path in ours.iterdir():
        (site / path.name).symlink_to(path)
    for name in needed(extra):
        _link(distribution(name), site)
    return Environment(folder / "bin" / "python")


def extras() -> Mapping[str, list[str]]:
    """Return what each extra of this tree requires; "" requires what Dovecote itself does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def needed(extra: str) -> set[str]:
    """Return the distributions that are installed with this extra, besides Dovecote."""
    found = set[tuple[str, str]]()
    todo = [(OURS, ""), (OURS, extra)]
    while todo:
        each = todo.pop()
        if each in found:
            continue
        found.add(each)
        for line in _requirements(*each):
            requirement = Requirement(line)
            if _holds(requirement, each[1]):
                name = _normal(requirement.name)
                todo += [(name, ""), *((name, more) for more in requirement.extras)]
    return {name for name, _ in found} - {OURS}


def _requirements(name: str, extra: str) -> list[str]:
    return extras()[extra] if name == OURS else distribution(name).requires or []


def _holds(requirement: Requirement, extra: str) -> bool:
    # A requirement of an extra has a marker that names the extra.
    environment = {name: str(value) for name, value in default_environment().items()}
    environment["extra"] = extra
    return requirement.marker is None or requirement.marker.evaluate(environment)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _shared() -> set[str]:
    """Return the names at the top of `site-packages` that several distributions share."""
    owners = defaultdict(set)
    for each in distributions():
        for name in _tops(each):
            owners[name].add(each.name)
    return {name for name, who in owners.items() if len(who) > 1}


def _tops(given: Distribution) -> set[str]:
    tops = {file.parts[0] for file in given.files or []}
    return tops - {"..", "__pycache__"}


def _paths(given: Distribution) -> Iterator[str]:
    """Yield the folders and files to link, relative to `site-packages`."""
    tops = _tops(given)
    yield from tops - _shared()
    for file in given.files or []:
        if file.parts[0] in tops & _shared() and "__pycache__" not in file.parts:
            yield str(file)


def _link(given: Distribution, site: Path) -> None:
    for path in _paths(given):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        if not (site / path).exists():
            (site / path).symlink_to(Path(str(given.locate_file(path))))
