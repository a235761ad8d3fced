"""`dovecote relay run`: what it says before anything runs."""

import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app, main
from dovecote.process.logs import LogFormat, LogLevel, configure
from outbox import BadSettings

SETTINGS = 'dsn = "host=h"\n[kafka]\n"bootstrap.servers" = "b:9092"\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "relay.toml"
    file.write_text(SETTINGS, encoding="utf-8")
    return file


def test_help_shows_an_example_and_the_variables() -> None:
    shown = CliRunner().invoke(app, ["relay", "run", "--help"])
    assert shown.exit_code == 0
    assert "Example: dovecote relay run --config relay.toml" in shown.output
    assert "DOVECOTE_RELAY_DSN" in shown.output


def test_check_validates_and_starts_nothing(config: Path) -> None:
    checked = CliRunner().invoke(app, ["relay", "run", "--check", "-c", str(config)])
    assert checked.exit_code == 0
    assert checked.output == "settings are valid: outbox 'outbox', exactly_once\n"


def test_bad_settings_are_bad_usage(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("speed = 1\n" + SETTINGS, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["dovecote", "relay", "run", "--check", "-c", str(config)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("dovecote: bad settings")
    assert "speed: " in said


def test_a_property_unknown_to_librdkafka_is_found_before_it_is_needed(config: Path) -> None:
    config.write_text(SETTINGS + '"lingre.ms" = 1\n', encoding="utf-8")
    checked = CliRunner().invoke(app, ["relay", "run", "--check", "-c", str(config)])
    assert isinstance(checked.exception, BadSettings)
    assert "lingre.ms" in str(checked.exception)


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        (LogLevel.DEBUG, [f"{name} {n}0" for name in ("ours", "theirs") for n in range(1, 5)]),
        (LogLevel.INFO, [f"{name} {n}0" for name in ("ours", "theirs") for n in range(2, 5)]),
        (LogLevel.WARNING, ["ours 30", "ours 40", "theirs 30", "theirs 40"]),
        (LogLevel.ERROR, ["ours 40", "theirs 40"]),
    ],
)
def test_the_level_holds_for_our_messages_and_those_of_applications(
    level: LogLevel, logged: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for log, name in ((configure(LogFormat.TEXT, level), "ours"), (logging.root, "theirs")):
        for number in (10, 20, 30, 40):
            log.log(number, "%s %d", name, number)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == logged


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_log_line_is_one_fact_in_the_form_asked_for(
    form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(form).warning("%s is away", "Kafka")
    (line,) = capsys.readouterr().err.splitlines()
    if form is LogFormat.JSON:
        fields = json.loads(line)
        assert (fields["level"], fields["message"]) == ("warning", "Kafka is away")
        assert fields["time"].endswith("+00:00")
    else:
        assert line.endswith("WARNING dovecote: Kafka is away")
