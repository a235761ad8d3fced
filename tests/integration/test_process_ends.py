"""However a parent or one of its processes ends, the others end in order, and it is said."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.parents import alive
from tests.support.small_crews import small_crew
from tests.support.waiting import patient, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_end_gracefully_with_status_0(number: int, tmp_path: Path) -> None:
    with small_crew(tmp_path) as crew:
        crew.gets_ready()
        assert crew.ends(with_signal=number) == 0, crew.said()
        assert crew.said().count(": stopped") == 3


def test_a_second_signal_changes_nothing(tmp_path: Path) -> None:
    slow = "Path(f'ends-{number}').touch(); time.sleep(1.5)"
    with small_crew(tmp_path, ending=slow) as crew:
        crew.gets_ready()
        for _ in range(2):
            crew.process.send_signal(signal.SIGTERM)
            until((tmp_path / "ends-0").exists, within=20, what="that it ends")
        assert crew.ends() == 0, crew.said()
        assert crew.said().count(": stopped") == 3


@pytest.mark.parametrize("pause", [0.0, 0.3, 0.6, 1.0])
def test_a_signal_while_all_start_ends_them_with_status_0(pause: float, tmp_path: Path) -> None:
    with small_crew(tmp_path, count=4, working=f"time.sleep({pause})") as crew:
        crew.says("running 4 processes")
        until(lambda: len(crew.children()) == 4, within=20, what="four processes")
        until(lambda: not pause or any(tmp_path.glob("began-*")), within=20, what="one begins")
        assert crew.ends() == 0, crew.said()


def test_a_signal_to_all_at_once_is_no_failed_start(tmp_path: Path) -> None:
    """A service manager may tell each process to end, and the parent last of all."""
    waits = f"from dovecote.processes import parent; parent._HEARS_LAST_SECONDS = {patient(1)}"
    with small_crew(tmp_path, parent=waits, starting="time.sleep(60)") as crew:
        until(lambda: len(list(tmp_path.glob("began-*"))) == 2, within=20, what="they start")
        for pid in crew.children():
            os.kill(pid, signal.SIGTERM)
        until(lambda: len(crew.children()) < 2, within=10, what="that the parent has noticed")
        assert crew.ends() == 0, crew.said()


def test_a_status_at_the_end_is_the_parents(tmp_path: Path) -> None:
    with small_crew(tmp_path, ending="if number == 1: os._exit(3)") as crew:
        crew.gets_ready()
        assert crew.ends() == 3, crew.said()
        why = "dovecote: process 1 ended with status 3 when it was told to end: what was not"
        assert why in crew.said()


def test_a_process_that_is_killed_while_it_ends_is_said(tmp_path: Path) -> None:
    code = "if number == 0: os.kill(os.getpid(), signal.SIGKILL)"
    with small_crew(tmp_path, ending=code) as crew:
        crew.gets_ready()
        assert crew.ends() == 1, crew.said()
        assert "process 0 was ended by SIGKILL when it was told to end" in crew.said()


def test_a_process_that_does_not_end_is_killed_and_said(tmp_path: Path) -> None:
    with small_crew(tmp_path, longest=-3, ending="if number == 1: time.sleep(90)") as crew:
        crew.gets_ready()
        assert crew.ends() == 1, crew.said()
        assert "process 1 did not end within 2 s and was killed" in crew.said()


def test_a_process_whose_parent_is_killed_ends_although_its_start_hangs(tmp_path: Path) -> None:
    with small_crew(tmp_path, starting="time.sleep(600)") as crew:
        until(lambda: len(list(tmp_path.glob("began-*"))) == 2, within=20, what="they start")
        children = crew.children()
        crew.process.kill()
        crew.process.wait()
        until(lambda: not any(map(alive, children)), within=20, what="that both have ended")


def test_an_end_at_once_with_status_0_is_a_failed_start(tmp_path: Path) -> None:
    with small_crew(tmp_path, starting="sys.exit(0)") as crew:
        assert crew.ends(with_signal=None) == 1
        assert "ended with status 0 before it had begun" in crew.said()


def test_a_process_that_ends_by_itself_with_status_0_is_started_again(tmp_path: Path) -> None:
    with small_crew(tmp_path, working="if first: os._exit(0)") as crew:
        for number in range(2):
            crew.says(f"process {number} is started again")
        crew.gets_ready()
        assert len(crew.children()) == 2
        assert crew.ends() == 0, crew.said()


def _in_a_terminal() -> None:
    """Begin a session that hears of its end, also where `nohup` runs the tests."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_the_end_of_the_terminal_ends_all_in_order(tmp_path: Path) -> None:
    """A terminal tells its session that it has ended, of which the processes are no part."""
    with small_crew(tmp_path, begin=_in_a_terminal) as crew:
        crew.gets_ready()
        children = crew.children()
        os.killpg(crew.process.pid, signal.SIGHUP)
        assert crew.ends(with_signal=None) == -signal.SIGHUP
        until(lambda: not any(map(alive, children)), within=20, what="that both have ended")
        assert crew.said().count(": stopped") == 2


def test_what_a_killed_process_has_started_ends_with_it(tmp_path: Path) -> None:
    pool = "Path(f'worker-{number}').write_text(str(subprocess.Popen(['sleep', '600']).pid))"
    with small_crew(tmp_path, working=pool) as crew:
        crew.gets_ready()
        worker = crew.wrote("worker-0")
        os.kill(crew.children()[0], signal.SIGKILL)
        until(lambda: not alive(worker), within=20, what="that its worker has ended")
        assert crew.ends() == 0, crew.said()
