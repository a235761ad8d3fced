"""
End a process of tests that waits where Python cannot interrupt it, and say where that is.

pytest-timeout raises in the main thread, once. That helps neither where a library waits for a
mutex or a thread of its own, nor where a test waits again on its way out.

A Kafka client may, rarely, wait for ever when it is destroyed (issue 4519 of librdkafka, which is
open). So a test that ended its process in this way is run once more, and fails if it does so
again. The summary names it.
"""

import faulthandler
import os
import time
from collections.abc import Generator
from typing import Any

import pytest

_LATER_SECONDS = 60.0
_stderr = pytest.StashKey[int]()
_began: dict[str, float] = {}
_ended: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is the process's own stderr while nothing of a test is captured."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        config.stash[_stderr] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End this process a minute after the test's time is up; a new one takes the other tests."""
    _end_later(item, _seconds(item) + _LATER_SECONDS)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Give a test that has failed this time once more: pytest gives it any."""
    if isinstance(node, pytest.Item):
        _end_later(node, _seconds(node) + _LATER_SECONDS)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note when a test begins, in the process that leads the others too."""
    _began[nodeid] = time.monotonic()


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Pass over a test that ended its process after its time was up: xdist runs it again."""
    seconds = time.monotonic() - _began.get(crashitem, time.monotonic())
    if seconds > _usual(sched.config) and crashitem not in _ended:
        _ended.add(crashitem)
        what = f"{crashitem} waited for {seconds:.0f} s where nothing interrupts it"
        report.outcome = "skipped"
        report.longrepr = (__file__, 0, f"Skipped: {what}; it is run again")


def _end_later(item: pytest.Item, seconds: float) -> None:
    if seconds > _LATER_SECONDS:  # otherwise there is no limit
        faulthandler.dump_traceback_later(seconds, file=item.config.stash[_stderr], exit=True)


def _seconds(item: pytest.Item) -> float:
    """Return the time of a test, as pytest-timeout finds it; 0.0: it has any."""
    marked = item.get_closest_marker("timeout")
    if marked is not None:
        return float(marked.args[0] if marked.args else marked.kwargs["timeout"])
    return _usual(item.config)


def _usual(config: pytest.Config) -> float:
    given = config.getoption("timeout", None)
    return float(
        os.environ.get("PYTEST_TIMEOUT") or config.getini("timeout") if given is None else given
    )
