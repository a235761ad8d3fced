"""`dovecote parked`: what an operator is told who asks for something."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import cli.parked
from cli.main import app
from relay.parked_requests import Asked


@pytest.mark.parametrize("has_relay", [True, False])
def test_who_waits_without_a_relay_is_told_so(
    *, has_relay: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def desk(_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            count=lambda: 2,
            has_relay=lambda: has_relay,
            ask=lambda *_: Asked([1], 2),
            are_done=lambda _: True,
            events=lambda *_: [],
        )

    monkeypatch.setattr(cli.parked, "desk", desk)
    config = tmp_path / "relay.toml"
    config.write_text('dsn = "host=h"\n[kafka]\n"bootstrap.servers" = "b"\n', encoding="utf-8")
    drop = ["parked", "drop", "--all", "--config", str(config)]
    waited = CliRunner().invoke(app, [*drop, "--wait"])
    assert waited.stdout == "dropped 2 events\n"
    assert ("no relay is active: waiting" in waited.stderr) is not has_relay
    asked = CliRunner().invoke(app, drop).stdout
    assert asked.startswith("asked to drop 2 events; ")
    assert ("no relay is active" in asked) is not has_relay
