"""Small programs that run themselves under a parent, and do what a test wants of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovecote.devstack.places import free_port
from tests.support.idle_push import Client
from tests.support.waiting import patient, until

# As the commands begin; a process does `starting`, `working` and `ending` when it is there.
_PROGRAM = """
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path
from typing import Any
from types import SimpleNamespace
from prometheus_client import CollectorRegistry
from dovecote.process.health import HealthReport
from dovecote.process.http.connections import Bounds
from dovecote.process.http.server import answer, serve
from dovecote.process.logs import LogFormat, configure, last_line, share_log
from dovecote.process.signals import on_end
from dovecote.process.states import State
from dovecote.processes.child import child
from dovecote.processes.parent import Parent, ProcessEnded, again
from dovecote.processes.run import run_all
from outbox.errors import DovecoteError

own = child(os.environ)
form = LogFormat.JSON if "json" in sys.argv else LogFormat.TEXT
log = configure(form, process=own and own.number)
if own is not None:
    share_log(own.turns)

class Well:
    def ready(self):
        return HealthReport(True, "member", "well", State.WORKING)

async def api(scope, receive, send):
    await answer(send, 200, json.dumps({"client": scope["client"][0]}).encode())

def main():
    if own is None:
        http = SimpleNamespace(host="127.0.0.1", port=PORT, hosts=())
        config = Path(sys.argv[1]) if sys.argv[1:] and sys.argv[1] != "json" else None
        bounds = Bounds(connections=100, requests=60)
        @PARENT
        run_all(COUNT, http, log, config=config, longest=LONGEST, bounds=bounds, max_body=100_000)
        return
    number = own.number
    first = not Path(f"began-{number}").exists()
    Path(f"began-{number}").touch()
    @STARTING
    ending = threading.Event()
    on_end(lambda *_: ending.set())
    own.ends_with_parent(ending.set)
    bounds = Bounds(connections=100, requests=60)
    with serve(
        own.knows_callers(api), "127.0.0.1", 0, hosts=(), bounds=bounds, health=Well(),
        numbers=CollectorRegistry(),
    ) as port:
        own.serves(port)
        @WORKING
        ending.wait()
        @ENDING
    log.info("stopped")

try:
    main()
except DovecoteError as error:
    sys.stderr.write(last_line(error))
    sys.exit(getattr(error, "status", 2))
"""


class SmallCrew:
    """A parent with its small processes, and their log."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.port, self.process = folder, port, process
        self.api, self.log = Client(port, None), folder / "log"

    def children(self) -> list[int]:
        """Return the ids of the parent's processes."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in path.read_text().split()]

    def wrote(self, name: str) -> int:
        """Return the number that a process writes to a file when it works, or a moment later."""
        file = self.folder / name
        text = until(lambda: file.exists() and file.read_text(), within=20, what=f"file {name}")
        return int(text)

    def said(self) -> str:
        return self.log.read_text()

    def says(self, words: str, within: float = 20) -> None:
        until(lambda: words in self.said(), within=within, what=f"{words!r} in {self.said()!r}")

    def gets_ready(self) -> None:
        until(self._is_ready, within=20, what=f"all are ready: {self.said()}")

    def ends(self, *, with_signal: int | None = signal.SIGTERM) -> int:
        """Return the status with which the parent ends."""
        if with_signal is not None:
            self.process.send_signal(with_signal)
        return self.process.wait(patient(20))

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.said()
        try:
            return self.api("GET", "/readyz").status == 200
        except OSError:
            return False


@contextmanager
def small_crew(
    folder: Path,
    *,
    count: int = 2,
    longest: float = 30,
    parent: str = "pass",
    starting: str = "pass",
    working: str = "pass",
    ending: str = "pass",
    begin: Callable[[], object] | None = None,
    arguments: tuple[str, ...] = (),
    **given: Any,
) -> Iterator[SmallCrew]:
    """Run such a program; `parent` and the others are lines of code, `begin` runs before it."""
    port = free_port()
    text = _PROGRAM.replace("PORT", str(port)).replace("COUNT", str(count))
    text = text.replace("LONGEST", str(longest))
    for name, code in {
        "@PARENT": parent,
        "@STARTING": starting,
        "@WORKING": working,
        "@ENDING": ending,
    }.items():
        indent = next(line for line in text.splitlines() if line.strip() == name)[: -len(name)]
        text = text.replace(name, f"\n{indent}".join(code.strip().splitlines()))
    path = os.pathsep.join(sys.path)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", text, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=log,
            stderr=log,
            preexec_fn=begin,  # noqa: PLW1509  # no other way to close what a program gets
            **given,  # such as pass_fds
        )
    crew = SmallCrew(folder, port, process)
    try:
        yield crew
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
