"""Fetch and build what the peers need, once, into the cache, or say what is missing."""

import fcntl
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from dovecote.devstack.errors import JarsDiffer, JarsMissing
from dovecote.devstack.kafka.jars import JarSet, fetch
from dovecote.devstack.kafka.java import java
from dovecote.devstack.places import cache

HERE = Path(__file__).parent
PROGRAMS = HERE / "java"
CHECKSUMS = HERE.parent / "checksums"
_TAMPERED = ("SECURITY ERROR", "checksum mismatch")
_BUILD_SECONDS = 1_800
_TAIL_LINES = 3


class PeerMissing(Exception):
    """A peer cannot be had on this machine; the message says what to install."""


class PeerFailed(Exception):
    """A peer was there and did not do its work."""


def dependencies(*modules: tuple[str, str, str]) -> str:
    """Return organisation, name and revision of each module as lines of an Ivy file."""
    return "".join(
        f'    <dependency org="{organisation}" name="{name}" rev="{revision}" conf="default"/>\n'
        for organisation, name, revision in modules
    )


def fetched(jars: JarSet) -> Path:
    """
    Return the folder of `jars`; fetch them first if they are not there.

    Raises:
        PeerMissing: they cannot be fetched from here.
        PeerFailed: something serves other files than those whose checksums are kept.
    """
    try:
        return fetch(jars)
    except JarsDiffer as error:
        raise PeerFailed(str(error)) from error
    except JarsMissing as error:
        raise PeerMissing(one_line(str(error))) from error


def program(main: str, jars: JarSet, *options: str) -> list[str]:
    """
    Return the command that runs the Java program `main`; compile it first if needed.

    Its class, all whose names begin with the same word, and `Used` are compiled together.

    Raises:
        PeerMissing: its jars or a compiler cannot be had.
        PeerFailed: it does not compile.
    """
    folder, runtime = fetched(jars), java()
    sources = [*sorted(PROGRAMS.glob(f"{_family(main)}*.java")), PROGRAMS / "Used.java"]
    beside = runtime.home / "bin/javac"
    compiler = str(beside) if beside.exists() else shutil.which("javac")

    def make(classes: Path) -> None:
        if compiler is None:
            raise PeerMissing(
                "there is no javac: install a JDK of Java 17 or later, such as Debian's "
                "openjdk-17-jdk-headless"
            )
        _build([compiler, "-d", str(classes), "-cp", f"{folder}/*", *map(str, sources)], main)

    classes = made(
        _family(main), [folder.name.encode(), *(each.read_bytes() for each in sources)], make
    )
    classpath = f"{classes}:{folder}/*"
    return [str(runtime.executable), *runtime.options, *options, "-cp", classpath, main]


def bento() -> Path:
    """
    Return the program; build it first if needed.

    Raises:
        PeerMissing: there is no Go, or its modules cannot be had.
        PeerFailed: something serves other modules than those whose checksums are kept.
    """
    folder = HERE / "bento"
    sources = [folder / name for name in ("go.mod", "go.sum", "main.go")]

    def make(built: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise PeerMissing("there is no go: install Go 1.23 or later")
        command = [go, "build", "-trimpath", "-o", str(built / "bento"), "."]
        _build(command, "Bento", folder, missing="its modules come from GOPROXY")

    return made("bento", [each.read_bytes() for each in sources], make) / "bento"


def made(name: str, parts: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """
    Return the folder of the cache that `make` has filled from `parts`; let it do so if needed.

    The folder appears when it is complete. Other processes that need the same wait meanwhile.
    """
    digest = hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in parts))
    place = cache() / "peers"
    folder = place / f"{name}-{digest.hexdigest()[:12]}"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        # The system releases it when the process ends, however it does.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            for left in place.glob("partial-*"):  # left by a process that was killed
                shutil.rmtree(left)
            with tempfile.TemporaryDirectory(prefix="partial-", dir=place) as partial:
                new = Path(partial) / "made"
                new.mkdir()
                make(new)
                new.rename(folder)
    return folder


def said(command: Sequence[str], *, within: float) -> Mapping[str, float]:
    """
    Run a peer to its end, and return the JSON object in the last line of its output.

    Raises:
        PeerFailed: it ended with another status than 0, took longer than `within` seconds, or
            said something else.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=within,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PeerFailed(f"it was not done within {within:g} s") from error
        log.seek(0)
        told = log.read()
    if done.returncode:
        raise PeerFailed(f"it ended with {done.returncode}: {tail(told)}")
    try:
        found: Mapping[str, float] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError as error:
        raise PeerFailed(f"its last line is no JSON: {tail(done.stdout)}") from error
    return found


def tail(log: str) -> str:
    """Return the last lines of a log as one line."""
    return one_line("\n".join(log.strip().splitlines()[-_TAIL_LINES:]))


def one_line(text: str) -> str:
    """Return the words of a text with one space between them."""
    return " ".join(text.split())


def is_tampered(log: str) -> bool:
    """Return whether a build failed because something serves other files than those pinned."""
    return any(each in log for each in _TAMPERED)


def _family(main: str) -> str:
    """Return the first word of a class's name, such as Flink of FlinkJob."""
    return main[0] + main[1:].partition(next(c for c in main[1:] if c.isupper()))[0]


def _build(
    command: Sequence[str], what: str, folder: Path | None = None, *, missing: str | None = None
) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailed(f"{what} was not built within {_BUILD_SECONDS} s") from error
    if done.returncode:
        told = f"{what} could not be built: {tail(done.stdout)}"
        if missing is None or is_tampered(done.stdout):
            raise PeerFailed(told)
        raise PeerMissing(f"{told} ({missing})")
