"""
Fetch jars by their coordinates, once, with the Ivy in the pyspark wheel.

`python -m dovecote.devstack.kafka.jars` fetches all that the stack needs, or with arguments those
versions of Kafka.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from dovecote.devstack.errors import JarsDiffer, JarsMissing, StackError
from dovecote.devstack.kafka.java import java
from dovecote.devstack.places import cache
from dovecote.devstack.progress import Fetched, Progress, shown
from dovecote.devstack.versions import KAFKA
from dovecote.process.signals import INTERRUPTED

_TAIL_LINES = 30

# No address: Ivy's own default is Maven Central.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches lockStrategy="artifact-lock-nio"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together, into one folder."""

    name: str
    dependencies: str
    """The contents of an Ivy file's `<dependencies>`."""
    checksums: Path | None = None
    """A file as `sha256sum` writes it, with all of the jars; None: any jars will do."""

    only: str | None = None
    """The one jar of `checksums` that belongs to it; None: all do."""

    def ivy_file(self) -> str:
        return (
            '<ivy-module version="2.0">\n'
            f'  <info organisation="dovecote" module="{self.name}"/>\n'
            f"  <dependencies>\n{self.dependencies}  </dependencies>\n"
            "</ivy-module>\n"
        )

    def folder(self) -> Path:
        """Return the folder of the jars, which depends on their list."""
        digest = hashlib.sha256(self.ivy_file().encode()).hexdigest()[:8]
        return cache() / "jars" / f"{self.name}-{digest}"


_CHECKSUMS = Path(__file__).with_name("checksums")
# Kafka's log, which its distribution adds and its module does not name.
_LOGS = {
    "3": ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    "4": ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
}


def kafka_jars(version: str | None = None) -> JarSet:
    """Return the jars of a version of Kafka, as `versions.KAFKA` names it."""
    revision = KAFKA.revisions[version or KAFKA.default]
    organisation, name, log = _LOGS[revision.partition(".")[0]]
    return JarSet(
        f"kafka-{revision}",
        f"""\
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{revision}" conf="default"/>
    <dependency org="{organisation}" name="{name}" rev="{log}"
                conf="default"/>
""",
        _CHECKSUMS / f"kafka-{revision}.sha256",
    )


def kafka_broker_jars(progress: Progress | None = None, version: str | None = None) -> Path:
    """Return the folder with the jars of a Kafka broker; fetch them if needed, as `fetch` does."""
    return fetch(kafka_jars(version), progress)


def fetch(jars: JarSet, progress: Progress | None = None) -> Path:
    """
    Return the folder that holds `jars`; fetch them first if they are not there.

    The folder appears when it is complete, so an existing one is whole. Other processes that need
    the same jars wait meanwhile. Without `progress`, standard error shows it.

    Raises:
        JarsMissing: they could not be fetched; the message says what to do offline.
        JarsDiffer: their checksums are not those that are kept.
    """
    folder = jars.folder()
    if folder.is_dir():
        return folder
    if progress is None:
        with shown() as on_screen:
            return fetch(jars, on_screen)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.parent / "lock"):
        if folder.is_dir():  # another process fetched them while we waited
            return folder
        for left in folder.parent.glob("partial-*"):  # left by a process that was killed
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix="partial-", dir=folder.parent) as partial:
            _run_ivy(jars, Path(partial), progress)
            require_jars(Path(partial) / "jars", jars)
            (Path(partial) / "jars").rename(folder)
    return folder


def require_jars(folder: Path, jars: JarSet) -> None:
    """
    Check that a folder holds the jars with these checksums, and nothing else.

    Raises:
        JarsDiffer: it does not; the message names the first jar that differs.
    """
    if jars.checksums is None:
        return
    lines = jars.checksums.read_text(encoding="ascii").splitlines()
    wanted = {
        name: digest
        for digest, _, name in (line.partition("  ") for line in lines)
        if jars.only in {None, name}
    }
    found = {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in sorted(folder.iterdir())
    }
    for name in sorted(wanted | found):
        if found.get(name) != wanted.get(name):
            is_ = f"sha256 {found[name]}" if name in found else "not there"
            should = f"sha256 {wanted[name]}" if name in wanted else "no such jar"
            msg = (
                f"the jars of {jars.name} are not those that {jars.checksums.name} lists: {name} "
                f"is {is_}, and should be {should}. Nothing of them is used. Find out what "
                "serves another file: a mirror in DOVECOTE_IVY_SETTINGS, or a proxy"
            )
            raise JarsDiffer(msg)


def _run_ivy(jars: JarSet, partial: Path, progress: Progress) -> None:
    """Retrieve `jars` into the folder `jars` of `partial`."""
    ivy_file = partial / "ivy.xml"
    ivy_file.write_text(jars.ivy_file())
    ivy_cache = cache() / "ivy"
    runtime = java()
    command = [
        str(runtime.executable),
        *runtime.options,
        f"-Divy.default.ivy.user.dir={ivy_cache}",
        *("-jar", str(_ivy())),
        *("-settings", str(_settings(partial))),
        *("-cache", str(ivy_cache)),
        *("-ivy", str(ivy_file)),
        *("-confs", "default"),
        *("-retrieve", f"{partial}/jars/[artifact]-[revision].[ext]"),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as ivy:
        tail = _follow(ivy.stdout or (), jars, progress)
    if ivy.returncode != 0 or not any((partial / "jars").glob("*.jar")):
        msg = (
            f"the jars of {jars.name} could not be fetched (Ivy ended with {ivy.returncode}).\n"
            "  They come from Maven Central. With a mirror of your own, name an ivysettings.xml"
            " in DOVECOTE_IVY_SETTINGS.\n"
            "  Offline, run `python -m dovecote.devstack.kafka.jars` on a machine with access,"
            " and copy"
            f" {jars.folder()} from there.\n"
            f"The end of what Ivy said:\n{tail}"
        )
        raise JarsMissing(msg)


def _follow(lines: Iterable[str], jars: JarSet, progress: Progress) -> str:
    """Report Ivy's `lines` to `progress`; return the last of them."""
    fetched = Fetched(jars.name, 0, 0, 0.0)
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    progress(fetched)
    for line in lines:
        if line.strip(" \t\n:"):
            tail.append(f"  {line.strip()}")
        after = _advance(fetched, line)
        if after != fetched:
            progress(fetched := after)
    return "\n".join(tail)


def _advance(fetched: Fetched, line: str) -> Fetched:
    if line.startswith("\tfound "):
        return fetched._replace(modules=fetched.modules + 1)
    if "[SUCCESSFUL ]" in line:
        return fetched._replace(jars=fetched.jars + 1)
    if size := re.fullmatch(r"\.+ \((\d+)kB\)\s*", line):
        return fetched._replace(megabytes=fetched.megabytes + int(size[1]) / 1024)
    return fetched


def _settings(folder: Path) -> Path:
    if given := os.environ.get("DOVECOTE_IVY_SETTINGS"):
        return Path(given)
    settings = folder / "ivysettings.xml"
    settings.write_text(_SETTINGS)
    return settings


def _ivy() -> Path:
    found = util.find_spec("pyspark")
    locations = (found and found.submodule_search_locations) or ()
    for location in locations:
        for jar in Path(location).glob("jars/ivy-*.jar"):
            return jar
    msg = "Ivy, which fetches jars, comes with the pyspark wheel: pip install 'dovecote[stack]'"
    raise JarsMissing(msg)


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Hold `file` locked; the system releases it when the process ends, however it does."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main(versions: Sequence[str] = ()) -> int:
    """Fetch the jars of these versions of Kafka, or of the default; return the exit status."""
    try:
        wanted = [KAFKA.choose(version) for version in versions] or [None]
        with shown() as progress:
            folders = [kafka_broker_jars(progress, version) for version in wanted]
    except StackError as error:
        sys.stderr.write(f"dovecote: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    sys.stdout.write("".join(f"{folder}\n" for folder in folders))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
