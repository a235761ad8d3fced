"""Keep Java's own archive of the classes that a server loads, for the next one."""

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

    Made at the end of the first server that is stopped and not killed. Java itself sees to it that
    an archive fits its jars, and goes on without where it does not.
    """

    def __init__(self, runtime: JavaRuntime, jars: Path) -> None:
        executable = runtime.executable.resolve()
        found = executable.stat()
        # Of a Java that was updated in its place, the archive would be refused ever after.
        known = f"{executable} {found.st_size} {found.st_mtime_ns}"
        # A Java without an archive of its own classes, as in a wheel, makes none of others either.
        self._can_be_made = (executable.parents[1] / "lib/server/classes.jsa").exists()
        self._kept = jars / f"classes-{hashlib.sha256(known.encode()).hexdigest()[:8]}.jsa"

    @property
    def is_wanted(self) -> bool:
        """Whether there is none, and there could be one."""
        return self._can_be_made and not self._kept.exists()

    def options(self) -> list[str]:
        """Return what has Java use the archive, if there is one."""
        return [f"-XX:SharedArchiveFile={self._kept}"] if self._kept.exists() else []

    def options_of_server(self, directory: Path) -> list[str]:
        """Return what has a server use the archive, or leave one in its `directory` at its end."""
        if not self.is_wanted:
            return self.options()
        # Its warnings are about classes that do not go into an archive, one line each.
        return [f"-XX:ArchiveClassesAtExit={_left(directory)}", "-Xlog:cds=off"]

    @staticmethod
    def discard(directory: Path) -> None:
        """Remove what a server that was killed at its end has left in its `directory`."""
        _left(directory).unlink(missing_ok=True)

    def keep(self, directory: Path) -> None:
        """Keep what a server that ended well has left in its `directory`."""
        left, partial = _left(directory), self._kept.with_suffix(f".{os.getpid()}")
        if not left.exists():
            return
        try:
            shutil.copyfile(left, partial)
            partial.replace(self._kept)
        except OSError as error:
            # A folder that is shared, or a full disk: the next server starts as this one did.
            _log.debug("no class archive is kept: %s", error)
            partial.unlink(missing_ok=True)
        self.discard(directory)


def _left(directory: Path) -> Path:
    return directory / "classes.jsa"
