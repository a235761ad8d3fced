"""
Install a wheel in fresh environments, try it there, and measure it.

`make dist` runs it for the oldest and the newest Python that is installed here. It prints a table:
for each extra, the packages, their size on the disk, and how long `import outbox` takes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

UV = ".venv-tools/bin/uv"

EXTRAS = ("", "producer", "relay", "consume", "push")
"""They install in seconds; `--extras spark,stack,all` takes minutes."""

_OLDEST = (3, 11)
_ROUNDS = 5

_TRY = """
import outbox, dedup, relay, dovecote
from importlib.metadata import version
assert dovecote.__version__ == version("dovecote")
outbox.Event(topic="orders", type="OrderPlaced", value={"order": 42})
from outbox.schema import script
assert "CREATE TABLE" in script()
"""

# The processor's time: a busy machine takes longer by the clock.
_TIME = "from time import process_time as now; t = now(); import outbox; print(now() - t)"

_VERSION = "import sys; assert sys.version_info[3] == 'final'; print(*sys.version_info[:3])"

_COMMANDS = {
    "": ["init outbox --print-sql", "init inbox --print-sql", "init push --print-sql"],
    "relay": ["relay run --help", "relay doctor --help"],
    "consume": ["consume run --help", "consume dead list --help", "replay --help"],
    "push": ["push serve --help", "push key", "push schema"],
    "spark": ["spark dedup --help", "schema aggregation"],
    "stack": ["stack up --help"],
    "demo": ["demo --help"],
}
"""The commands to try with each extra, after the base's."""


class Python(NamedTuple):
    """A Python that is installed on this machine."""

    version: tuple[int, ...]
    path: str


class Measured(NamedTuple):
    """The size of an installation, and the time of an import."""

    packages: int
    megabytes: float
    import_ms: float


def chosen(found: Sequence[Python]) -> list[Python]:
    """Return the oldest and the newest Python that Dovecote supports, or the only one."""
    fit = sorted(each for each in found if each.version[:2] >= _OLDEST)
    return fit[:1] + [each for each in fit[-1:] if each.version[:2] != fit[0].version[:2]]


def pythons() -> list[Python]:
    """Return every CPython that is on the path, or that pyenv has, and that starts."""
    folders = [*map(Path, os.get_exec_path()), *Path.home().glob(".pyenv/versions/*/bin")]
    paths = {path for folder in folders for path in folder.glob("python3.*")}
    found: dict[tuple[int, ...], Python] = {}
    for path in sorted(each for each in paths if each.suffix[1:].isdecimal()):
        done = subprocess.run([path, "-I", "-c", _VERSION], check=False, capture_output=True)
        if done.returncode == 0:
            version = tuple(map(int, done.stdout.split()))
            found.setdefault(version, Python(version, str(path)))
    return list(found.values())


def measure(wheel: Path, extra: str, python: Python, folder: Path) -> Measured:
    """
    Install the wheel with an extra in a new environment in `folder`, and try it.

    Raises:
        CalledProcessError: it does not install, or does not work.
    """
    home = folder / f"{extra or 'base'}-{python.version[1]}"
    _output([UV, "venv", "--quiet", "--python", python.path, str(home)])
    ours = str(home / "bin/python")
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    _output([UV, "pip", "install", "--quiet", "--python", ours, wanted])
    _output([UV, "pip", "check", "--quiet", "--python", ours])
    _output([ours, "-I", "-c", _TRY])
    command = str(home / "bin/dovecote")
    _output([command, "--version"])
    for line in [*_COMMANDS[""], *_COMMANDS.get(extra, [])]:
        _output([command, *line.split()])
    listed = json.loads(_output([UV, "pip", "list", "--format", "json", "--python", ours]))
    (site,) = home.glob("lib/python3*/site-packages")
    size = sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    times = [float(_output([ours, "-I", "-c", _TIME])) for _ in range(_ROUNDS)]
    return Measured(len(listed), size / 1e6, 1_000 * min(times))


def row(extra: str, python: Python, measured: Measured) -> str:
    """Return a row of the table."""
    name = f"`dovecote[{extra}]`" if extra else "`dovecote`"
    version = ".".join(map(str, python.version))
    return (
        f"| {name} | {version} | {measured.packages} | {measured.megabytes:.0f} MB "
        f"| {measured.import_ms:.0f} ms |"
    )


def built_at(revision: str, folder: Path) -> Path:
    """Return the wheel of an earlier revision of this repository, which is made in `folder`."""
    tree = folder / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", revision], check=True, capture_output=True)  # noqa: S607
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)  # noqa: S607
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=tree, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.artefacts")
    parser.add_argument(
        "--extras", default=",".join(EXTRAS), help="extras, with commas; '' is none"
    )
    parser.add_argument("--at", help="measure an earlier revision in place of dist/*.whl")
    parser.add_argument("--newest", action="store_true", help="with the newest Python alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dovecote-wheel-") as name:
        folder = Path(name)
        if given.at:
            wheel = built_at(given.at, folder)
        else:
            (wheel,) = Path("dist").glob("*.whl")
        every = chosen(pythons())
        print("| installed | Python | packages | on the disk | `import outbox` |")  # noqa: T201
        print("|---|---|---|---|---|")  # noqa: T201
        for python in every[-1:] if given.newest else every:
            for extra in given.extras.split(","):
                print(row(extra, python, measure(wheel, extra, python, folder)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
