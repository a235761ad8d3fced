import logging

import pytest

from dovecote.process.rarely import Rarely


def test_of_a_storm_a_few_lines_are_logged_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.0
    monkeypatch.setattr("dovecote.process.rarely.time.monotonic", lambda: now)
    log = Rarely(logging.getLogger("test.rarely"), most=2)
    for number in range(5):
        log.warning("line %d", number)
    now = 2.0
    log.warning("line %d", 5)
    more = "… and 3 more lines like those before"
    assert caplog.messages == ["line 0", "line 1", more, "line 5"]
