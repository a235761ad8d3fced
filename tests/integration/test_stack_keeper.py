"""The keeper, with small programs in place of servers."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dovecote.devstack import keeper
from dovecote.devstack.keeper import Launch
from dovecote.devstack.processes import Process
from tests.support.waiting import patient, until

# Prints its own id, and that of a child in a session of its own, like Postgres's children.
PROGRAM = """\
import pathlib, signal, subprocess, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"],
                         start_new_session=True)
pathlib.Path("child").write_text(str(child.pid))
try:
    signal.pause()
finally:
    if "careless" not in sys.argv:
        child.kill()
        child.wait()
"""


class Kept:
    """A keeper and the two processes below it."""

    def __init__(self, folder: Path, *arguments: str, **launch: object) -> None:
        self.keeper = subprocess.Popen(
            [sys.executable, "-P", keeper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        argv = [sys.executable, "-c", PROGRAM, *arguments]
        log = str(folder / "log")
        asked = Launch(argv=argv, env=dict(os.environ), directory=str(folder), log=log)
        self.tell(json.dumps(json.loads(asked.to_json()) | launch))
        self.server = process(int(self.answer()))
        child = folder / "child"
        until(lambda: child.exists() and child.read_text(), within=10, what="the child runs")
        self.child = process(int(child.read_text()))

    def tell(self, line: str) -> None:
        assert self.keeper.stdin is not None
        self.keeper.stdin.write(f"{line}\n".encode())

    def answer(self) -> str:
        assert self.keeper.stdout is not None
        assert select.select([self.keeper.stdout], [], [], patient(10))[0], (
            "the keeper does not answer"
        )
        return self.keeper.stdout.readline().decode().strip()

    def hang_up(self) -> None:
        assert self.keeper.stdin is not None
        self.keeper.stdin.close()

    def all_gone(self, within: float = 10) -> None:
        until(
            lambda: not (self.server.running or self.child.running),
            within=within,
            what="the server and its child are gone",
        )

    def close(self) -> None:
        self.keeper.kill()
        self.keeper.wait(patient(10))
        for pipe in (self.keeper.stdin, self.keeper.stdout):
            assert pipe is not None
            pipe.close()
        if self.child.running:
            os.kill(self.child.pid, signal.SIGKILL)


def process(pid: int) -> Process:
    found = Process.of(pid)
    assert found is not None
    return found


def states(kept: Kept) -> set[str]:
    return {str(psutil.Process(one.pid).status()) for one in (kept.server, kept.child)}


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(*arguments: str, **launch: object) -> Kept:
        made.append(Kept(tmp_path, *arguments, **launch))
        return made[-1]

    yield make
    for kept in made:
        kept.close()


def test_the_end_of_the_asking_process_ends_the_server(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.hang_up()
    assert kept.keeper.wait(patient(10)) == 0
    kept.all_gone()


def test_stop_asks_the_server_and_the_keeper_ends_with_it(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.tell("stop")
    assert kept.answer() == "stop"
    assert kept.keeper.wait(patient(10)) == 0
    kept.all_gone()


def test_a_server_that_does_not_end_when_asked_is_killed(keep: Callable[..., Kept]) -> None:
    kept = keep("stubborn", grace=0.2)
    kept.tell("stop")
    assert kept.keeper.wait(patient(10)) == 0
    kept.all_gone()


def test_what_a_server_leaves_behind_is_waited_for(keep: Callable[..., Kept]) -> None:
    kept = keep("careless", grace=0.5)
    os.kill(kept.server.pid, signal.SIGKILL)
    until(lambda: not kept.server.running, within=10, what="the server is gone")
    assert kept.child.running
    assert kept.keeper.poll() is None
    kept.tell("kill")
    assert kept.keeper.wait(patient(10)) == 0
    kept.all_gone()


def test_kill_reaches_the_servers_children(keep: Callable[..., Kept]) -> None:
    kept = keep("stubborn")
    kept.tell("kill")
    assert kept.keeper.wait(patient(10)) == 0
    kept.all_gone()


def test_pause_stops_the_whole_server_and_resume_lets_it_go_on(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.tell("pause")
    assert kept.answer() == "pause"
    until(lambda: states(kept) == {"stopped"}, within=10, what="both are stopped")
    kept.tell("resume")
    assert kept.answer() == "resume"
    until(lambda: "stopped" not in states(kept), within=10, what="both go on")


def test_a_paused_server_ends_with_the_asking_process_too(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.tell("pause")
    assert kept.answer() == "pause"
    kept.hang_up()
    assert kept.keeper.wait(patient(10)) == 0
    kept.all_gone()


def test_a_killed_keeper_takes_its_server_along(keep: Callable[..., Kept]) -> None:
    kept = keep("stubborn")
    kept.keeper.kill()
    until(lambda: not kept.server.running, within=10, what="the server is gone")


def test_a_detached_server_outlives_the_asking_process(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.tell("detach")
    assert kept.answer() == "detach"
    kept.hang_up()
    with pytest.raises(subprocess.TimeoutExpired):
        kept.keeper.wait(0.3)
    assert kept.server.running

    kept.keeper.terminate()

    assert kept.keeper.wait(patient(10)) == 0
    kept.all_gone()


def test_the_keyboards_interrupt_is_not_for_the_keeper(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.keeper.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        kept.keeper.wait(0.2)
    assert kept.server.running


def test_a_folder_that_was_only_for_the_asking_process_goes_with_it(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    folder = tmp_path / "stack/server"
    folder.mkdir(parents=True)
    kept = keep(remove=str(folder))
    kept.hang_up()
    kept.keeper.wait(patient(10))
    assert not folder.parent.exists()
    assert tmp_path.exists()


def test_the_folder_of_another_server_beside_it_stays(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    for name in ("server", "other"):
        (tmp_path / "stack" / name).mkdir(parents=True)
    kept = keep(remove=str(tmp_path / "stack/server"))
    kept.hang_up()
    kept.keeper.wait(patient(10))
    assert [one.name for one in (tmp_path / "stack").iterdir()] == ["other"]


def test_a_server_that_cannot_be_run_ends_the_keeper_with_a_reason(tmp_path: Path) -> None:
    launch = Launch(
        argv=["/no/such/server"],
        env={},
        directory=str(tmp_path),
        log=str(tmp_path / "log"),
    )
    ended = subprocess.run(
        [sys.executable, "-P", keeper.__file__],
        input=f"{launch.to_json()}\n",
        capture_output=True,
        text=True,
        timeout=patient(10),
        check=False,
    )
    assert ended.returncode != 0
    assert "No such file or directory: '/no/such/server'" in ended.stderr
