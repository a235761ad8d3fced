"""A parent with several processes, as the commands run it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.idle_push import Client
from tests.support.waiting import patient, until

COMMAND = str(Path(sys.executable).with_name("dovecote"))
TOKEN = "of-the-test"  # noqa: S105  # as it says


class Crew:
    """A parent, with its processes and its log."""

    def __init__(
        self, folder: Path, arguments: list[str], port: int, environ: dict[str, str]
    ) -> None:
        self.folder, self.log = folder, folder / "log"
        self.port, self.api, self.stranger = port, Client(port, TOKEN), Client(port, None)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [COMMAND, *arguments],
                cwd=folder,
                env={**os.environ, **environ},
                stderr=out,
            )

    def children(self) -> list[int]:
        """Return the ids of the parent's processes."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in path.read_text().split()]

    def ready(self) -> dict[str, Any]:
        """Return what the parent says of all; nothing while it does not answer."""
        try:
            answer = self.api("GET", "/readyz")
        except OSError:
            return {"ok": False}
        return dict(answer.body)

    def metrics(self) -> str:
        answer = self.api("GET", "/metrics")
        assert answer.status == 200, answer
        return str(answer.body)

    def gets_ready(self, within: float = 60) -> None:
        until(
            lambda: self.ready()["ok"] or self.process.poll() is not None,
            within=within,
            what=f"all are ready: {self.log.read_text()}",
        )
        assert self.process.poll() is None, self.log.read_text()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(patient(60))


@contextmanager
def crew(folder: Path, arguments: list[str], port: int, **environ: str) -> Iterator[Crew]:
    made = Crew(folder, arguments, port, environ)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.terminate()
            made.process.wait(patient(60))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
