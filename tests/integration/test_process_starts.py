"""A parent that is started in odd ways does its work, or says what is wrong."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovecote.processes.child import VARIABLE, child
from outbox.errors import BadSettings
from tests.support.small_crews import small_crew
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")


def test_a_status_is_known_where_the_ends_of_children_are_ignored(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    with small_crew(tmp_path, starting="sys.exit(7)", begin=ignore) as crew:
        assert crew.ends(with_signal=None) == 7, crew.said()
        assert "ended with status 7" in crew.said()


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1), (0, 1, 2)])
def test_closed_standard_streams_do_no_harm(closed: tuple[int, ...], tmp_path: Path) -> None:
    """A descriptor that is opened next gets the number of one of them."""

    def close() -> None:
        for each in closed:
            os.close(each)

    with small_crew(
        tmp_path,
        parent="http.port = None",
        starting="log.info('it starts')",
        working="print('x' * 10_000, flush=True); Path(f'works-{number}').touch()",
        ending="Path(f'ended-{number}').touch()",
        begin=close,
    ) as crew:
        until(lambda: len(list(tmp_path.glob("works-*"))) == 2, within=20, what="both work")
        (tmp_path / "works-0").unlink()
        os.kill(crew.children()[0], signal.SIGKILL)
        until((tmp_path / "works-0").exists, within=20, what="that it is started again")
        assert crew.ends() == 0
        assert len(list(tmp_path.glob("ended-*"))) == 2


def test_a_reader_of_the_log_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    def break_the_pipe() -> None:
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 2)

    twice = "if first: os._exit(3)\nPath(f'again-{number}').touch()"
    with small_crew(tmp_path, working=twice, begin=break_the_pipe) as crew:
        until(lambda: len(list(tmp_path.glob("again-*"))) == 2, within=20, what="they go on")
        crew.gets_ready()
        assert crew.ends() == 0


def test_processes_have_the_streams_and_their_own_socket_and_nothing_else(tmp_path: Path) -> None:
    code = "Path(f'open-{number}').write_text(json.dumps(os.listdir('/proc/self/fd')))"
    with small_crew(tmp_path, count=3, starting=code) as crew:
        crew.gets_ready()
        for number in range(3):
            # The streams, the socket, the file of the log, and the folder that is being listed.
            assert (tmp_path / f"open-{number}").read_text().count('"') / 2 == 6
        assert crew.ends() == 0


def test_settings_that_can_be_read_once_are_refused(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(write)
    with small_crew(tmp_path, arguments=(f"/dev/fd/{read}",), pass_fds=(read,)) as crew:
        os.close(read)
        assert crew.ends(with_signal=None) == 2
        assert "can be read only once, and each of 2 processes reads it" in crew.said()


def test_more_processes_than_the_machine_allows_are_said(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))"
    with small_crew(tmp_path, count=40, parent=limit, starting="time.sleep(60)") as crew:
        assert crew.ends(with_signal=None) == 1
        assert "of 40 could not be started (Too many open files): set fewer" in crew.said()


_FULL = """
start = threading.Thread.start
def unless_full(thread):
    if thread.name.startswith("ask") and any(Path().glob("began-*")):
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = unless_full
"""


def test_a_parent_needs_no_thread_more_once_its_processes_run(tmp_path: Path) -> None:
    """The processes may have taken all that the machine, or the container, allows."""
    with small_crew(tmp_path, parent=_FULL) as crew:
        crew.gets_ready()
        assert crew.ends() == 0, crew.said()


def test_threads_that_cannot_be_started_are_said(tmp_path: Path) -> None:
    (tmp_path / "began-5").touch()
    with small_crew(tmp_path, parent=_FULL + "http.port = None") as crew:
        assert crew.ends(with_signal=None) == 1
        assert "a thread for each of 2 could not be started (can't start new" in crew.said()


@pytest.mark.parametrize("told", ["4", "", "0:9999:2:" + "0" * 32, "0:1", "x:3:4:y"])
def test_the_variable_of_parents_is_theirs_alone(told: str) -> None:
    with pytest.raises(BadSettings, match="unset it; the setting is `processes`"):
        child({VARIABLE: told})


def test_orphans_leave_no_trace_in_the_first_process_of_a_container(tmp_path: Path) -> None:
    """The kernel gives orphans to the first process, as it does to one that asks for them."""
    asks = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)"
    orphan = "subprocess.run(['sh', '-c', 'sleep 0.2 & sleep 0.1'])"
    with small_crew(tmp_path, parent=asks, working=orphan) as crew:
        crew.gets_ready()
        until(lambda: len(crew.children()) == 2, within=20, what="that no orphan is left")
        os.kill(crew.children()[0], signal.SIGKILL)
        crew.says("process 0 is started again")
        crew.gets_ready()
        assert crew.ends() == 0, crew.said()


def test_one_process_alone_loads_no_server() -> None:
    code = (
        "import sys; from dovecote.cli.consume import run; "
        "sys.exit(any(name in sys.modules for name in ('uvicorn', 'fastapi')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
