"""Parked events, as the command lists them."""

import json
from typing import Any, NamedTuple

from typer.testing import CliRunner

from dovecote.cli.main import app
from outbox.errors import BadSettings, DovecoteError
from relay.rules.parking import OWN_TOPIC, EventToPark
from tests.support.relaying import (
    DSN,
    RelayProcess,
    Relays,
    settings,
)


class Done(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def parked(fleet: Relays, *arguments: str) -> Done:
    """Run `dovecote relay parked`, in this process."""
    config = fleet.folder / "parked.toml"
    config.write_text(settings(fleet.bootstrap, name=fleet.name), encoding="utf-8")
    result = CliRunner().invoke(
        app, ["relay", "parked", *arguments, "--config", str(config)], env={DSN: fleet.dsn}
    )
    if isinstance(result.exception, DovecoteError):
        # As `dovecote.cli.main.main` ends.
        status = 2 if isinstance(result.exception, BadSettings) else 1
        return Done(status, result.stdout, str(result.exception))
    assert result.exception is None or isinstance(result.exception, SystemExit), result
    return Done(result.exit_code, result.stdout, result.stderr)


def listed(fleet: Relays, *arguments: str) -> list[dict[str, Any]]:
    done = parked(fleet, "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def poison(count: int) -> list[EventToPark]:
    """Return events to park, of 500 bytes each."""
    return [
        EventToPark(
            (n, f"{n:032x}", 0, "orders", b"k", b"v" * 500, "T", "/s", None, None, [], []),
            OWN_TOPIC,
            holds=True,
        )
        for n in range(count)
    ]


def ready(relay: RelayProcess) -> bool:
    return relay.get("/readyz").status == 200
