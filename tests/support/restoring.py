"""A Postgres whose files are copied and restored, and reconciliations that are cut short."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.process.settings.loading import load
from relay.kafka.publisher import PublisherInTurn
from relay.operating.reconcile import Accepted, _Reconciler
from relay.operating.reconcile import reconcile as in_process
from relay.postgres.claims import Claim
from relay.settings import PREFIX, RelaySettings
from tests.support.relaying import COMMAND, DSN, Relays, settings
from tests.support.waiting import patient


class Volume:
    """The server of one test, and copies of its files in the same temporary folder."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres
        self._data, self._copies = postgres.directory / "data", 0

    @property
    def dsn(self) -> str:
        return make_conninfo(self.postgres.dsn)

    def snapshot(self) -> Path:
        """Copy the files as they are at one moment, whatever the server is doing."""
        copy = self.postgres.directory / f"snapshot-{self._copies}"
        self._copies += 1
        running = self.postgres.running
        if running:
            self.postgres.pause()
        try:
            subprocess.run(["/bin/cp", "-a", self._data, copy], check=True)
        finally:
            if running:
                self.postgres.resume()
        return copy

    def put_back(self, copy: Path) -> None:
        """Restore the state in which `copy` was made; everything since then is gone."""
        self.postgres.kill()
        rmtree(self._data)
        subprocess.run(["/bin/cp", "-a", copy, self._data], check=True)
        self.postgres.start()


@pytest.fixture
def files() -> Iterator[Volume]:
    """A server of this test alone."""
    folder = temporary_directory(server_user())
    try:
        with Postgres(folder / "postgres", fsync=False) as postgres:
            yield Volume(postgres)
    finally:
        rmtree(folder)


def reconcile(
    fleet: Relays, *options: str, dsn: str | None = None, **fields: Any
) -> list[dict[str, Any]]:
    """Run the command, and return its report on each shard."""
    done = subprocess.run(
        asked(fleet, *options, **fields),
        env={**os.environ, DSN: dsn or fleet.dsn},
        capture_output=True,
        text=True,
        timeout=patient(90),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def asked(fleet: Relays, *options: str, **fields: Any) -> list[str]:
    """Return the command that `relay reconcile` runs."""
    config = fleet.folder / "reconcile.toml"
    config.write_text(settings(fleet.bootstrap, **{"name": fleet.name, **fields}))
    return [COMMAND, "relay", "reconcile", "--config", str(config), "--json", *options]


class Cut(Exception):
    """It ends the command at a place of our choice, as a kill does."""


def cut_short(
    fleet: Relays, where: str, monkeypatch: pytest.MonkeyPatch, *, restored: bool
) -> None:
    """Accept the difference in this process, as far as `where`."""

    def cut(*_: object, **__: object) -> None:
        raise Cut

    owner, name = CUTS[where]
    config = fleet.folder / "cut.toml"
    config.write_text(settings(fleet.bootstrap, name=fleet.name, retention="1h"))
    loaded = load(RelaySettings, config, prefix=PREFIX, environ={DSN: fleet.dsn})
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cut)
        with pytest.raises(Cut):
            list(in_process(loaded, Accepted(restored=restored, cluster=not restored)))


CUTS: Mapping[str, tuple[type[Any], str]] = {
    "before its first record": (PublisherInTurn, "publish"),
    "after its first record": (_Reconciler, "_publish"),
    "before it lets relays go on": (_Reconciler, "_finish"),
    "before it names the cluster": (Claim, "move"),
}
