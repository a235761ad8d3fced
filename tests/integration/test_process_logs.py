"""Processes under one parent share a log, in which each record is whole."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.small_crews import small_crew
from tests.support.waiting import patient, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")

# Each record is longer than a pipe takes at once, and the reader is slow.
TALK = """
def deep(depth):
    if depth:
        deep(depth - 1)
    raise ValueError("x" * 3000)
for _ in range(30):
    try:
        deep(200)
    except ValueError:
        log.exception("y" * 3900)
"""


def test_long_records_of_several_processes_are_whole_in_a_slow_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()

    def into_pipe() -> None:
        os.dup2(write, 2)

    arguments = ("json",)
    with small_crew(tmp_path, count=4, ending=TALK, begin=into_pipe, arguments=arguments) as crew:
        os.close(write)
        crew.gets_ready()
        crew.process.send_signal(signal.SIGTERM)
        found, deadline = bytearray(), time.monotonic() + patient(60)
        while part := os.read(read, 3000):
            found += part
            time.sleep(0.0002)  # the slow reader, which is what is tested
            assert time.monotonic() < deadline
        os.close(read)
        assert crew.process.wait(patient(10)) == 0
    lines = [json.loads(line) for line in found.decode().splitlines()]
    long = [line for line in lines if line["level"] == "error"]
    assert sorted(line["process"] for line in long) == sorted([0, 1, 2, 3] * 30)
    assert min(len(json.dumps(line)) for line in long) > 4096


def test_a_stopped_process_keeps_nobody_from_writing_for_long(tmp_path: Path) -> None:
    holds = """
import fcntl
held = Path("held")
if number == 0:
    fcntl.lockf(own.turns, fcntl.LOCK_EX)
    held.touch()
else:
    while not held.exists():
        time.sleep(0.01)
    began = time.monotonic()
    log.error("written")
    Path("took").write_text(str(time.monotonic() - began))
"""
    with small_crew(tmp_path, working=holds) as crew:
        took = tmp_path / "took"
        until(lambda: took.exists() and took.read_text(), within=20, what="that it is written")
        assert "written" in crew.said()
        assert 2 <= float(took.read_text()) < patient(10)
        assert crew.ends() == 0, crew.said()
