"""The error for a Kafka that is away names that Kafka."""

import socket
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.process.topics import KafkaAway, topics
from outbox.errors import DovecoteError
from tests.support.waiting import patient


def test_a_kafka_that_is_away_is_named_and_its_client_is_silent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = "127.0.0.1:1"
    with pytest.raises(DovecoteError, match=rf"{where} .*`bootstrap\.servers` right"):
        topics({"bootstrap.servers": where}, timeout=0.3)
    # Clients of other tests that are not collected yet may log too, about other brokers.
    assert f"{where}/" not in capfd.readouterr().err


def test_brokers_that_refuse_each_connection_are_not_waited_for() -> None:
    begun = time.monotonic()
    with pytest.raises(KafkaAway):
        topics({"bootstrap.servers": "127.0.0.1:1"}, timeout=patient(60))
    assert time.monotonic() - begun < patient(30)


def test_brokers_that_are_slow_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovecote.process.topics._FIRST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(KafkaAway):
            topics({"bootstrap.servers": where}, timeout=1.0)
    assert time.monotonic() - begun >= 0.9


@pytest.mark.parametrize(
    "command",
    [
        "consume status -c {consume}",
        "consume skip a/0/1 --why x -c {consume}",
        "consume dead list -c {consume}",
        "topic list -b 127.0.0.1:1",
        "topic tail a -b 127.0.0.1:1",
        "relay status -c {relay}",
    ],
)
def test_each_command_says_that_kafka_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("dovecote.process.topics._FIRST_SECONDS", 0.2)
    kafka = '[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    consume, relay = tmp_path / "consume.toml", tmp_path / "relay.toml"
    consume.write_text(
        f'topics = ["a"]\ngroup = "g"\n{kafka}[retries]\ndead_letter_topic = "a.dead"\n'
    )
    relay.write_text(f'dsn = "host=127.0.0.1 port=1"\n{kafka}')
    words = command.format(consume=consume, relay=relay).split()

    result = CliRunner().invoke(app, words)

    assert isinstance(result.exception, DovecoteError)
    assert str(result.exception).startswith("Kafka does not answer at 127.0.0.1:1 (")
    assert str(result.exception).endswith("); is it there, and is `bootstrap.servers` right?")
