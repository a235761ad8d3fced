"""A process that does not answer is seen, is asked for nothing, and is started again."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.small_crews import SmallCrew, small_crew
from tests.support.waiting import patient, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")

IMPATIENT = "from dovecote.processes import parent, run; run.Parent = __import__('functools')"
IMPATIENT += ".partial(parent.Parent, patience={})"


def test_a_silent_process_is_killed_and_started_again(tmp_path: Path) -> None:
    patience = round(patient(2))
    with small_crew(tmp_path, parent=IMPATIENT.format(patience)) as crew:
        crew.gets_ready()
        silent = crew.children()[1]
        os.kill(silent, signal.SIGSTOP)
        crew.says(
            f"process 1 did not answer for {patience} s and was killed; it is started again",
            patience + 30,
        )
        crew.gets_ready()
        assert silent not in crew.children()
        assert crew.ends() == 0, crew.said()


def test_a_start_that_hangs_ends_all_with_a_reason(tmp_path: Path) -> None:
    code = "if number == 1: time.sleep(600)"
    # Process 0 begins in this time on a busy machine too.
    patience = round(patient(4))
    with small_crew(tmp_path, parent=IMPATIENT.format(patience), starting=code) as crew:
        assert crew.ends(with_signal=None) == 1
        assert f"process 1 did not begin for {patience} s and was killed" in crew.said()


def test_a_parent_that_was_stopped_kills_nobody(tmp_path: Path) -> None:
    patience = round(patient(3))
    with small_crew(tmp_path, parent=IMPATIENT.format(patience)) as crew:
        crew.gets_ready()
        children = crew.children()
        crew.process.send_signal(signal.SIGSTOP)
        time.sleep(patience + 2)  # longer than its patience, which is what is tested
        crew.process.send_signal(signal.SIGCONT)
        crew.gets_ready()
        until(lambda: crew.api("GET", "/readyz").status == 200, within=20, what="all are ready")
        assert crew.children() == children
        assert crew.ends() == 0, crew.said()


def test_metrics_do_not_wait_for_a_silent_process(tmp_path: Path) -> None:
    with small_crew(tmp_path) as crew:
        crew.gets_ready()
        silent = crew.children()[0]
        os.kill(silent, signal.SIGSTOP)
        try:
            text = until(lambda: shown_at_once(crew), within=30, what="metrics at once")
            assert 'dovecote_process_up{process="0"} 0.0' in text
            assert 'dovecote_process_up{process="1"} 1.0' in text
        finally:
            os.kill(silent, signal.SIGCONT)
        assert crew.ends() == 0, crew.said()


def shown_at_once(crew: SmallCrew) -> str:
    """Return the metrics, if nobody waited for the process that is silent."""
    began = time.monotonic()
    text = str(crew.api("GET", "/metrics").body)
    return text if time.monotonic() - began < patient(1) and '_up{process="0"} 0.0' in text else ""
