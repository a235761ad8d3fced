"""One dead letter in each kind of part, with the settings file that names the parts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner
from typer.testing import Result as Outcome

from dedup.kafka.letters import Letters
from dedup.retries import copies
from dedup.rules.record import Record
from dovecote.cli.main import app
from dovecote.observe.sources import WatchSettings, read
from outbox import envelope
from outbox.envelope import ID, TYPE, Delivery

NOW = 1_800_000_000_000


@dataclass
class Watched:
    """The settings file, and the command that reads it."""

    file: Path
    environ: dict[str, str]

    def run(self, *words: str, **given: Any) -> Outcome:
        """Run `dovecote dead` in this process."""
        command = ["dead", words[0], "--config", str(self.file), *words[1:]]
        return CliRunner().invoke(app, command, env=self.environ, **given)

    def listed(self, *words: str) -> list[dict[str, Any]]:
        """Return the letters that the command lists."""
        done = self.run("list", "--json", *words)
        assert done.exit_code == 0, done.output + repr(done.exception)
        told = [json.loads(line) for line in done.output.splitlines()]
        assert [each for each in told if "error" in each] == []
        return [each for each in told if "place" in each]

    def ids(self, *words: str) -> list[str]:
        return [each["id"] for each in self.listed(*words)]

    def settings(self) -> WatchSettings:
        return read(WatchSettings, self.file, self.environ)


@dataclass(frozen=True)
class Buried:
    """The text of one letter."""

    id: str
    key: str = "k"
    type: str = "Placed"
    reason: str = "KeyError: 'amount'"
    value: str = '{"total": 5}'


def bury(
    bootstrap: str, topic: str, origin: str, some: Sequence[Buried], group: str | None = None
) -> None:
    """Write letters to a dead-letter topic, as a consumer does."""
    with Letters({"bootstrap.servers": bootstrap}) as letters:
        for number, each in enumerate(some):
            headers = [(ID, each.id.encode()), (TYPE, each.type.encode())]
            record = Record(
                origin,
                0,
                number,
                NOW,
                each.key.encode(),
                each.value.encode(),
                envelope.with_delivery(headers, Delivery(attempt=3, group=group)),
            )
            copy = copies.dead(record, record.identity, now=NOW, error=each.reason)
            letters.send(topic, copy)
