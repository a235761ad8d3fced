"""
Make the Python environment of a corner, with uv.

A corner with other packages gets an environment that lies over another one: Python finds the
packages of the corner first, and all others below. So it takes seconds to make.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from dovecote.devstack.places import cache
from tests.matrix.corners import Corner, Packages
from tests.support.documents import ROOT

_LOCK = ROOT / "requirements/dev.txt"
_SECONDS = 1_200
_MOST_TOLD = 300
# The parts that run by themselves; what a service may have besides is tested as it is locked.
_VARIED = {"consume", "push", "relay"}


class CannotBeHad(Exception):
    """A version is not there, here and now; the message is the tool's."""


def environment(corner: Corner) -> Path:
    """
    Return the Python that runs a corner's tests.

    Raises:
        CannotBeHad: there is no such Python, or a package cannot be installed.
    """
    base = _base(corner.python)
    if corner.packages is Packages.LOCKED and corner.pyspark is None:
        return base
    folder = _new(f"over-{corner.name}", corner.python)
    _uv("venv", "--quiet", "--python", str(base), str(folder))
    python = folder / "bin/python"
    _uv("pip", "install", "--quiet", "--python", str(python), *_wanted(corner))
    over = Path(_asked(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    under = _asked(base, "import sysconfig; print(sysconfig.get_path('purelib'))")
    # `addsitedir` appends, so what is found in `over` comes first.
    (over / "below.pth").write_text(f"import site; site.addsitedir({under!r})\n")
    # The one below would run with the packages there.
    command = folder / "bin/dovecote"
    command.write_text(f"#!{python}\nfrom dovecote.cli.main import main\nmain()\n")
    command.chmod(0o755)
    return python


def versions(python: Path) -> Mapping[str, str]:
    """Return the versions of what `pyproject.toml` names, as an environment has them."""
    ask = (
        "import sys; from importlib.metadata import version, PackageNotFoundError\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(name, version(name))\n"
        "    except PackageNotFoundError: pass\n"
    )
    lines = _asked(python, ask, *sorted(_names())).splitlines()
    return dict(line.split(" ") for line in lines)


def exact(python: Path) -> str:
    """Return the full version of a Python."""
    return _asked(python, "import platform; print(platform.python_version())")


def _wanted(corner: Corner) -> Iterator[str]:
    yield from ("--requirements", str(ROOT / "pyproject.toml"))
    yield from (part for extra in _varied(corner) for part in ("--extra", extra))
    if corner.packages is Packages.OLDEST:
        yield from ("--resolution", "lowest-direct")
    if corner.pyspark:
        # `~=` stays within the minor version.
        yield f"pyspark~={corner.pyspark}.0"


def _varied(corner: Corner) -> list[str]:
    return sorted(extras_varied() & (_VARIED | ({"spark"} if corner.pyspark else set())))


def extras_varied() -> set[str]:
    """Return the extras whose packages vary."""
    return set(_project()["optional-dependencies"]) & (_VARIED | {"spark"})


def _names() -> set[str]:
    """Return the names of the packages that may vary."""
    project = _project()
    wanted = [
        *project["dependencies"],
        *(each for extra in extras_varied() for each in project["optional-dependencies"][extra]),
    ]
    names = {name_of(each) for each in wanted}
    return (names | {"psycopg-binary"}) - {"dovecote"}


def name_of(requirement: str) -> str:
    """Return the name in a requirement, in the form that indexes compare."""
    name = requirement
    for mark in " [=<>~!;":
        name = name.partition(mark)[0]
    return name.lower().replace("_", "-").replace(".", "-")


def _project() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = tomllib.loads(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    return found


def _base(version: str) -> Path:
    """Return a Python of this minor version with the locked packages."""
    if version == sysconfig.get_python_version():
        return Path(sys.executable)
    digest = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:8]
    folder = cache() / "matrix" / f"python-{version}-{digest}"
    python = folder / "bin/python"
    if (folder / "complete").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _uv("venv", "--quiet", "--seed", "--python", _interpreter(version), str(folder))
    build = str(ROOT / "requirements/build.txt")
    _uv("pip", "install", "--quiet", "--python", str(python), "--requirements", build)
    _uv(
        *("pip", "install", "--quiet", "--no-build-isolation", "--python", str(python)),
        *("--requirements", str(_LOCK)),
    )
    _uv(
        *("pip", "install", "--quiet", "--no-build-isolation", "--no-deps"),
        *("--python", str(python), "--editable", str(ROOT)),
    )
    (folder / "complete").touch()
    return python


def _interpreter(version: str) -> str:
    """Return a Python of this minor version, from `PATH` or pyenv; otherwise uv looks for one."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
    for candidate in filter(None, found):
        # pyenv puts commands into `PATH` that end with an error.
        ask = [str(candidate), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return str(candidate)
    return version


def _new(name: str, version: str) -> Path:
    folder = cache() / "matrix" / f"{name}-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def _uv(*arguments: str) -> None:
    uv = ROOT / ".venv-tools/bin/uv"
    program = str(uv) if uv.exists() else shutil.which("uv")
    if program is None:
        msg = "uv is missing: make matrix installs it"
        raise CannotBeHad(msg)
    done = subprocess.run(
        [program, *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        told = " ".join(re.findall(r"[\w./:=<>~`'(){},-]+", done.stderr))
        raise CannotBeHad(told[:_MOST_TOLD] or f"uv ended with {done.returncode}")


def _asked(python: Path, code: str, *arguments: str) -> str:
    return subprocess.run(
        [str(python), "-c", code, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()
