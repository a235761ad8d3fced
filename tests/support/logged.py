"""Logging as it was before a test, whatever a library or a command made of it."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """
    Put handlers, levels and switches of all loggers back.

    A worker of Celery sets the root's level for the whole process, and a command of Dovecote
    replaces its handlers: `caplog` of every later test would stay empty.
    """
    root = logging.root
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    before = {log: (log.level, log.disabled, log.propagate) for log in _loggers()}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    root.manager.disable = disabled
    for log, (its, off, propagates) in before.items():
        if log.level != its:
            log.setLevel(its)  # it also empties the cache of what is enabled
        log.disabled, log.propagate = off, propagates
    logging.captureWarnings(capture=False)


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [each for each in known if isinstance(each, logging.Logger)]
