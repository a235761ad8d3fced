"""A process hears that it is asked to end; its forked children are ended as any other process."""

import os
import subprocess
import sys

import pytest

from tests.support.waiting import patient

# Each program ends with status 0 if all is well, and within two minutes in any case.
_BEGINS = """
import multiprocessing, os, signal, subprocess, sys, threading
from dovecote.process.signals import ending_within, on_end

# A shell starts what runs in its background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
heard = threading.Event()
read, write = os.pipe()
signal.alarm(120)

def rest():
    signal.alarm(120)
    os.write(write, b"r")
    signal.pause()
    os._exit(7)

def ended(pid, number):
    os.read(read, 1)
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

on_end(lambda *_: heard.set())
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BEGINS + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr


FORK = """
pid = os.fork()
if pid == 0:
    rest()
assert ended(pid, signal.SIGTERM) == -signal.SIGTERM
"""
IN_THREAD = """
def work():
    pid = os.fork()
    if pid == 0:
        rest()
    found.append(ended(pid, signal.SIGTERM))
found = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert found == [-signal.SIGTERM], found
"""
MULTIPROCESSING = """
child = multiprocessing.get_context("fork").Process(target=rest)
child.start()
os.read(read, 1)
child.terminate()
child.join()
assert child.exitcode == -signal.SIGTERM, child.exitcode
"""
BEFORE_EXEC = """
def told():
    os.write(write, str(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL).encode())
subprocess.run([sys.executable, "-c", "pass"], preexec_fn=told, check=True)
assert os.read(read, 10) == b"True"
"""


@pytest.mark.parametrize(
    "program",
    [FORK, IN_THREAD, MULTIPROCESSING, BEFORE_EXEC],
    ids=["fork", "thread", "mp", "exec"],
)
def test_a_forked_child_ends_when_it_is_asked(program: str) -> None:
    run(program)


def test_a_child_of_a_child_is_interrupted_as_any_other() -> None:
    run("""
pid = os.fork()
if pid == 0:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    inner = os.fork()
    if inner == 0:
        rest()
    assert ended(inner, signal.SIGTERM) == -signal.SIGTERM
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""")


def test_the_parent_still_hears() -> None:
    run(FORK + "os.kill(os.getpid(), signal.SIGTERM)\nassert heard.wait(60)")


def test_what_a_handler_sets_itself_stays_in_its_children() -> None:
    run("""
own = lambda *_: os._exit(5)
signal.signal(signal.SIGTERM, own)
pid = os.fork()
if pid == 0:
    rest()
assert ended(pid, signal.SIGTERM) == 5
""")


def test_within_a_block_only_and_children_take_what_was_first() -> None:
    run("""
inner = threading.Event()
with ending_within(lambda *_: inner.set()):
    pid = os.fork()
    if pid == 0:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    os.kill(os.getpid(), signal.SIGTERM)
    assert inner.wait(60)
os.kill(os.getpid(), signal.SIGINT)
assert heard.wait(60)
""")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_while_a_lock_is_held_waits_for_nobody(number: str) -> None:
    """An event's `wait` holds such a lock for a moment, and its `set` takes the same one."""
    run(f"""
signal.alarm(120)
lock = threading.Lock()
def end(*_):
    with lock:
        ended.set()
ended = threading.Event()
on_end(end)
with lock:
    os.kill(os.getpid(), signal.{number})
    for _ in range(1000):
        pass  # the handler of the signal runs between two of these
assert ended.wait(60)
""")


def test_a_block_leaves_no_thread_behind() -> None:
    run("""
for _ in range(3):
    before = set(threading.enumerate())
    with ending_within(lambda *_: None):
        [new] = set(threading.enumerate()) - before
    new.join(60)
    assert not new.is_alive()
""")
