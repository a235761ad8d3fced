"""Keep Java's own archive of the classes that a server loads, to start the next one faster."""

import hashlib
import logging
import os
import shutil
from pathlib import Path

from dovecote.devstack.kafka.java import JavaRuntime

_log = logging.getLogger("dovecote.devstack")


class ClassArchive:
    """
    The archive of a Java and a folder of jars, in that folder (JEP 350, dynamic archives).

    It is made when the first server is stopped rather than killed. Java itself checks that an
    archive fits its jars, and goes on without it if it does not.
    """

    def __init__(self, runtime: JavaRuntime, jars: Path) -> None:
        executable = runtime.executable.resolve()
        found = executable.stat()
        # After an update in place, Java would refuse the old archive for ever.
        known = f"{executable} {found.st_size} {found.st_mtime_ns}"
        # A Java without an archive of its own classes, such as the one in a wheel, cannot make
        # others.
        self._can_be_made = (executable.parents[1] / "lib/server/classes.jsa").exists()
        self._kept = jars / f"classes-{hashlib.sha256(known.encode()).hexdigest()[:8]}.jsa"

    @property
    def is_wanted(self) -> bool:
        """Whether there is no archive, and one can be made."""
        return self._can_be_made and not self._kept.exists()

    def options(self) -> list[str]:
        """Return the options that make Java use the archive, if there is one."""
        return [f"-XX:SharedArchiveFile={self._kept}"] if self._kept.exists() else []

    def options_of_server(self, directory: Path) -> list[str]:
        """
        Return the options that make a server use the archive, or leave one in its `directory`.
        """
        if not self.is_wanted:
            return self.options()
        # It would warn about each class that does not go into the archive, one line each.
        return [f"-XX:ArchiveClassesAtExit={_left(directory)}", "-Xlog:cds=off"]

    @staticmethod
    def discard(directory: Path) -> None:
        """Remove the file that a server left in its `directory` when it was killed at its end."""
        _left(directory).unlink(missing_ok=True)

    def keep(self, directory: Path) -> None:
        """Keep the archive that a server left in its `directory` at an orderly end."""
        left, partial = _left(directory), self._kept.with_suffix(f".{os.getpid()}")
        if not left.exists():
            return
        try:
            shutil.copyfile(left, partial)
            partial.replace(self._kept)
        except OSError as error:
            # The folder may be shared, or the disk full: the next server starts as slowly as this
            # one did.
            _log.debug("no class archive is kept: %s", error)
            partial.unlink(missing_ok=True)
        self.discard(directory)


def _left(directory: Path) -> Path:
    return directory / "classes.jsa"
