"""A standby logs once for whom it stands by, and again only after it was active itself."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import relay.standby
from relay.health import Health
from relay.metrics import Metrics
from relay.relay import Relay
from relay.settings import RelaySettings
from relay.standby import Standby

Told = Callable[..., list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Told:
    def run(*turns: str, active: list[str | None], shards: int = 1) -> list[str]:
        """Return the log of turns, each of which finds the role taken or free."""
        stop, left, found = threading.Event(), list(turns), iter(active)

        @contextmanager
        def try_acquire(*_: object) -> Iterator[SimpleNamespace | None]:
            turn = left.pop(0)
            if not left:
                stop.set()
            yield SimpleNamespace(number=0) if turn == "free" else None

        @contextmanager
        def connect(*_: object, **__: object) -> Iterator[None]:
            yield None

        monkeypatch.setattr(relay.standby, "try_acquire", try_acquire)
        monkeypatch.setattr(relay.standby, "connect", connect)
        able = Mock(**{"may_ask.return_value": True, "stand.return_value": None})
        monkeypatch.setattr(relay.standby, "Candidacy", lambda *_: able)
        monkeypatch.setattr(relay.standby, "active", lambda *_: next(found))
        monkeypatch.setattr(Relay, "be_active", lambda *_: None)
        settings = RelaySettings.model_validate(
            {
                "dsn": "host=h",
                "kafka": {"bootstrap.servers": "b"},
                "standby_poll": "1ms",
                "shards": shards,
            }
        )
        metrics = [Metrics(shard.name) for shard in settings.own_shards()]
        with caplog.at_level(logging.INFO, logger="dovecote.relay"):
            Standby(settings, health=Health(), metrics=metrics).run(stop)
        return [each for each in caplog.messages if "standing by" in each]

    return run


def test_it_is_said_once(told: Told) -> None:
    assert told("taken", "taken", "taken", active=["10.0.0.7 (session 42)"]) == [
        "standing by: 10.0.0.7 (session 42) is active"
    ]


def test_it_is_said_again_after_it_was_active(told: Told) -> None:
    assert told("taken", "free", "taken", "taken", active=["a", "b"]) == [
        "standing by: a is active",
        "standing by: b is active",
    ]


def test_nobody_is_named_who_is_gone_already(told: Told) -> None:
    assert told("taken", "taken", "taken", active=[None, "b"]) == ["standing by: b is active"]


def test_all_are_named_that_have_a_shard(told: Told) -> None:
    assert told("taken", active=["a", "b"], shards=2) == ["standing by: a, b are active"]
