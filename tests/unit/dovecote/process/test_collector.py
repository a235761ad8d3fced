"""A process rarely collects garbage, if the platform allows it."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dovecote.process import memory as heap

# In a process of its own, because the settings stay until its end.
RELAXED = """
import gc
from dovecote.process.memory import relax
from dovecote.process.memory import keep_freed

relax()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold()[0] == 200_000
print(keep_freed())
"""


def test_a_process_leaves_what_is_loaded_out_of_collections() -> None:
    done = subprocess.run([sys.executable, "-c", RELAXED], capture_output=True, check=True)
    assert done.stdout.strip() in {b"True", b"False"}


def test_every_option_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, int] = {}

    def mallopt(option: int, size: int) -> int:
        asked[option] = size
        return int(option != -2)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert not heap.keep_freed()
    assert asked == {1: 0, -1: 1 << 26, -2: 1 << 24, -3: 1 << 25}


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not heap.keep_freed()


# Like a relay's reading: batches of small objects come and go, some of them in memory of their
# own.
BATCHES = """
import resource, sys
from dovecote.process.memory import Arenas

arenas = Arenas(most=int(sys.argv[1]))

def batch():
    rows = [(str(n), bytes(200), n) for n in range(20_000)]
    arenas.keep(row[0] for row in rows[::100])

for _ in range(3):
    batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, len(arenas._kept))
"""


def test_memory_of_small_objects_is_touched_once() -> None:
    def faults_and_kept(most: int) -> tuple[int, int]:
        command = [sys.executable, "-c", BATCHES, str(most)]
        done = subprocess.run(command, capture_output=True, check=True)
        faults, kept = map(int, done.stdout.split())
        return faults, kept

    let_go, _ = faults_and_kept(0)
    faults, kept = faults_and_kept(64)
    assert faults < let_go / 4
    assert 1 <= kept <= 64
    assert faults_and_kept(2)[1] == 2
