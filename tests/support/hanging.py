"""
End a process of tests that waits where Python cannot interrupt it, and say where that is.

pytest-timeout raises in the main thread, once. That helps neither where a library waits for a
mutex or a thread of its own, nor where a test waits again on its way out.
"""

import faulthandler
import os
from collections.abc import Generator

import pytest

_LATER_SECONDS = 60.0
_stderr = pytest.StashKey[int]()


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


def _end_later(item: pytest.Item, seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, file=item.config.stash[_stderr], exit=True)


def _seconds(item: pytest.Item) -> float:
    marked = item.get_closest_marker("timeout")
    return float(item.config.getini("timeout") if marked is None else marked.args[0])
