"""A server counts as gone when it has been silent for long, and only then."""

import struct
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from relay.postgres.capture import wal
from relay.postgres.capture.wal import Timing, WalCapture
from relay.rules.places.progress import LogPosition, Newest

SILENT = SimpleNamespace(
    silence=lambda: 60.0, has_come=lambda: False, report=lambda _: None, wait=lambda *_: None
)


@pytest.fixture
def capture() -> WalCapture:
    return WalCapture("", "outbox", batch_rows=10, batch_bytes=1_000, timing=Timing(8.0, 10.0))


def test_a_server_that_says_nothing_is_given_up(capture: WalCapture) -> None:
    with pytest.raises(psycopg.OperationalError, match="nothing on the replication stream for 60"):
        capture._hear(cast("Any", SILENT))


def test_what_it_said_and_nobody_took_is_no_silence(capture: WalCapture) -> None:
    # There was no room for it while the broker was away.
    capture._hear(cast("Any", SimpleNamespace(**{**vars(SILENT), "has_come": lambda: True})))


@pytest.mark.parametrize(("xid", "has_it"), [(7, True), (8, False)])
def test_a_server_that_reads_its_log_is_waited_for_however_long_that_takes(
    capture: WalCapture, monkeypatch: pytest.MonkeyPatch, xid: int, *, has_it: bool
) -> None:
    clock = count(0, 25)  # each look takes long, and each time it says how far it has come
    monkeypatch.setattr(wal, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    begun = bytes(25) + b"B" + struct.pack(">QqI", 1_000, 99, xid)
    messages = [[b"k" + struct.pack(">QqB", at, 0, 0)] for at in range(0, 1_000, 100)] + [[begun]]
    stream = SimpleNamespace(
        **{**vars(SILENT), "silence": lambda: 25.0},
        receive=lambda: messages.pop(0),
        received=lambda _: None,
    )
    decoder = SimpleNamespace(caught_up=lambda _: None)
    monkeypatch.setattr(capture, "_open", lambda *_, **__: (stream, decoder))
    assert capture.has(LogPosition(1_010), Newest(1_000, "7@99")) is has_it


def test_a_server_that_stops_reading_its_log_is_given_up(
    capture: WalCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = SimpleNamespace(**vars(SILENT), receive=list)
    monkeypatch.setattr(capture, "_open", lambda *_, **__: (stream, None))
    with pytest.raises(psycopg.OperationalError, match="does not come to 0/3E8"):
        capture.has(LogPosition(1_010), Newest(1_000, "7@99"))
