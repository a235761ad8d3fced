"""Read the files of a checkpoint, on this machine's disk or through Spark's file systems."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]  # it has no types
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from outbox.errors import BadSettings, DovecoteError
from spark_jobs.errors import CheckpointUnavailable

R = TypeVar("R")


class Files(Protocol):
    """The files of a checkpoint, by their names in it."""

    @property
    def place(self) -> str: ...
    def read(self, name: str) -> str | None:
        """Return the text of a file; None: there is none."""
        ...

    def names(self, folder: str = "") -> list[str]:
        """Return what is in a folder; nothing if it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A checkpoint on a disk of this machine."""

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str = "") -> list[str]:
        here = self.folder / folder
        return [each.name for each in here.iterdir()] if here.is_dir() else []


class SparkFiles:
    """A checkpoint on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """
        Find the file system.

        Raises:
            BadSettings: there is none for this URL, or no bucket.
            CheckpointUnavailable: it does not answer.
        """
        context = spark.sparkContext
        jvm = context._jvm  # noqa: SLF001  # no public way to Spark's file systems
        if jvm is None:
            msg = "this Spark has no JVM of its own: Spark Connect cannot run the job"
            raise BadSettings(msg)
        self._jvm: Any = jvm
        self._gateway: Any = context._gateway  # noqa: SLF001  # as above
        self._configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001  # as above
        self.place = checkpoint
        self._system = self._asked(lambda: self._path("").getFileSystem(self._configuration))
        self._read_from = self._system
        if is_instance_of(self._gateway, self._system, "org.apache.hadoop.fs.ChecksumFileSystem"):
            # A file and its checksum are replaced one after the other. If a process is killed in
            # between, they do not fit for good. Our files say themselves whether they are whole.
            self._read_from = self._system.getRawFileSystem()

    def on_a_disk(self) -> Path | None:
        """Return the folder, as each machine would look for it; None: it is on no disk."""
        if self._system.getUri().getScheme() != "file":
            return None
        return Path(self._system.makeQualified(self._path("")).toUri().getPath())

    def exists(self, name: str) -> bool:
        return self._asked(lambda: bool(self._system.exists(self._path(name))))

    def read(self, name: str) -> str | None:
        def read() -> str:
            stream = self._read_from.open(self._path(name))
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            stream.close()
            return text

        return self._asked(read) if self.exists(name) else None

    def names(self, folder: str = "") -> list[str]:
        if not self.exists(folder):
            return []
        found = self._asked(lambda: self._system.listStatus(self._path(folder)))
        return [str(each.getPath().getName()) for each in found]

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is there as a whole, or not at all."""
        written = self._path(f".{name}.{uuid4().hex}.tmp")
        try:
            self._asked(lambda: self._write(name, written, data))
        except DovecoteError:
            # A supervisor may try for days, and each try would leave a file.
            with suppress(Py4JJavaError):
                self._system.delete(written, False)  # noqa: FBT003  # Java's argument
            raise

    def _write(self, name: str, written: Any, data: bytes) -> None:  # noqa: ANN401  # Java's
        out = self._system.create(written, True)  # noqa: FBT003  # Java's argument
        out.write(bytearray(data))
        out.close()
        hadoop = self._jvm.org.apache.hadoop.fs
        # The name has a dollar sign, for the class is within another one.
        overwrite = getattr(hadoop, "Options$Rename").OVERWRITE
        options = self._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
        options[0] = overwrite
        context = hadoop.FileContext.getFileContext(written.toUri(), self._configuration)
        context.rename(written, self._path(name), options)

    def _path(self, name: str) -> Any:  # noqa: ANN401  # Java's
        hadoop = self._jvm.org.apache.hadoop.fs
        return hadoop.Path(self.place, name) if name else hadoop.Path(self.place)

    def _asked(self, ask: Callable[[], R]) -> R:
        try:
            return ask()
        except Py4JJavaError as error:
            raise unusable(self.place, _chain(error.java_exception)) from error
        except PySparkException as error:  # Java's exceptions about a name are exchanged for it
            said = str(error).partition("\n")[0]
            if "UnknownHost" in said:  # its name server may be away
                raise unusable(self.place, [said]) from error
            msg = f"spark.checkpoint {self.place} cannot be used: correct its name ({said})"
            raise BadSettings(msg) from error


def _chain(raised: Any) -> list[str]:  # noqa: ANN401  # Java's
    """Return what an exception and its causes say, the outermost first."""
    found: list[str] = []
    while raised is not None and len(found) < _MOST_CAUSES:
        found.append(str(raised.toString()))
        raised = raised.getCause()
    return found


_MOST_CAUSES = 20
_REMEDIES = (
    (
        re.compile(r"Class \S+ not found|No FileSystem for scheme|NoClassDefFoundError"),
        (
            "the jars of this file system are missing: give them to spark-submit with --packages "
            "or --jars, or, without spark-submit, name them in spark.conf (spark.jars.packages, "
            "spark.jars)"
        ),
    ),
    (
        re.compile(r"UnknownStoreException|[Bb]ucket does not exist|NoSuchBucket"),
        "there is no such bucket: create it, or correct spark.checkpoint",
    ),
    (
        # Names of files have hexadecimal digits at random, and 403 among them.
        re.compile(
            r"AccessDenied|Access Denied|[Ff]orbidden|InvalidAccessKeyId|\b403\b|"
            r"SignatureDoesNotMatch|NoAuthWithAWS|Unable to load credentials|"
            r"AccessControlException|Permission denied"
        ),
        "these credentials may not use it: correct them in spark.conf, or grant access",
    ),
)


def unusable(checkpoint: str, said: list[str]) -> DovecoteError:
    """Return the error for a checkpoint that cannot be used, by what Java's exceptions say."""
    text = " ".join(said)
    last = said[-1] if said else "no reason"
    for pattern, remedy in _REMEDIES:
        if pattern.search(text) is not None:
            shown = next(each for each in reversed(said) if pattern.search(each))
            return BadSettings(f"spark.checkpoint {checkpoint} cannot be used: {remedy} ({shown})")
    return CheckpointUnavailable(
        f"spark.checkpoint {checkpoint} does not answer: {last}. Nothing is lost; start the job "
        "again when it does"
    )
