"""Find a Java for Kafka and Spark: the system's, or otherwise the one in a wheel."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dovecote.devstack.errors import JavaMissing
from dovecote.devstack.kafka import java_wheel

MINIMUM = 17
"""The oldest Java that Kafka 4 and Spark 4 run on."""

_VERSION_SECONDS = 120
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java to run."""

    executable: Path
    home: Path
    """For `JAVA_HOME`, for programs that start Java themselves, without the options."""

    options: tuple[str, ...] = ()
    """Belong on every command line of `executable`."""

    def environment(self) -> dict[str, str]:
        """Return the variables with which programs that start Java themselves use this one."""
        return {"JAVA_HOME": str(self.home)}


@dataclass(frozen=True, slots=True)
class _Found:
    home: Path


def java(environ: Mapping[str, str] = os.environ) -> JavaRuntime:
    """
    Return the first Java that is new enough: from `JAVA_HOME`, from `PATH`, from the wheel.

    `DOVECOTE_JAVA` overrides the choice: `system` or `wheel`.

    Raises:
        JavaMissing: there is none.
    """
    choice = environ.get("DOVECOTE_JAVA", "")
    if choice not in {"", "system", "wheel"}:
        msg = f"DOVECOTE_JAVA must be `system`, `wheel` or absent, not {choice!r}"
        raise JavaMissing(msg)
    refused = []
    if choice != "wheel":
        for executable, home in _system(environ):
            found = _ask(executable)
            if isinstance(found, _Found):
                return JavaRuntime(executable, home or found.home)
            refused.append(found)
    if choice != "system":
        wheel = java_wheel.home()
        if wheel is not None:
            options = java_wheel.trust(environ)
            facade = java_wheel.facade(wheel, options)
            return JavaRuntime(wheel / "bin/java", facade, options)
        refused.append(f"the wheel {java_wheel.NAME} is not installed ({java_wheel.INSTALL})")
    looked = "; ".join(refused) or "JAVA_HOME is not set and PATH has no java"
    msg = f"no Java >= {MINIMUM} found: {looked}"
    raise JavaMissing(msg)


def _system(environ: Mapping[str, str]) -> Iterator[tuple[Path, Path | None]]:
    """Yield each Java to ask, with its home if that is known."""
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin/java", Path(home)
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(found), None


@lru_cache
def _ask(executable: Path) -> _Found | str:
    """Run `executable` to learn its version and home; return the reason if it is not suitable."""
    try:
        told = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not run ({error})"
    version = _VERSION.search(told.stdout)
    home = _HOME.search(told.stdout)
    if told.returncode != 0 or version is None or home is None:
        return f"{executable} does not report its version (exit status {told.returncode})"
    if int(version[1]) < MINIMUM:
        return f"{executable} is Java {version[1]}"
    return _Found(Path(home[1]))
