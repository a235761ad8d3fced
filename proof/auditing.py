"""Run an auditor beside the relays, kill it too, and ask it at the end what it found."""

import json
import os
import random
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dovecote.demo.children import Child, dovecote
from outbox.errors import DovecoteError

RETENTION = "2h"
_DSN = "DOVECOTE_PROOF_AUDIT_DSN"
_SECONDS = 300.0
_CHANCE = 0.25


class Audited(NamedTuple):
    """The auditor's result of a run."""

    kills: int
    matched: int
    dropped: int
    """Events that an operator dropped."""
    findings: list[dict[str, Any]]
    troubles: list[str]


class Beside:
    """One auditor, which is killed now and then and goes on from its state."""

    def __init__(self, directory: Path, dsn: str, bootstrap: str, seed: int) -> None:
        self._directory, self._dsn = directory, dsn
        self._config = directory / "watch.toml"
        self._chance = random.Random(seed)  # noqa: S311  # no secret
        self.kills = 0
        state = json.dumps(str(directory / "audit.sqlite3"))
        self._config.write_text(
            f'[kafka]\n"bootstrap.servers" = {json.dumps(bootstrap)}\n'
            f'[sources.outbox.proof]\ndsn = {{ env = "{_DSN}" }}\nretention = "{RETENTION}"\n'
            f'[audit]\nstate = {state}\nlate = "2h"\ngrace = "5s"\n',
            encoding="utf-8",
        )
        self._child = self._started()

    def _started(self) -> Child:
        return Child(
            "auditor",
            dovecote("audit", "--json", "--config", str(self._config)),
            self._directory / "auditor.log",
            environment={_DSN: self._dsn},
        )

    def disturb(self) -> None:
        """
        Perhaps kill it, and start another one.

        Raises:
            DovecoteError: it ended by itself.
        """
        self._require_running()
        if self._chance.random() < _CHANCE:
            self._child.kill()
            self.kills += 1
            self._child = self._started()

    def _require_running(self) -> None:
        if self._child.status is not None:
            msg = f"the auditor ended by itself: {self._child.tail()}"
            raise DovecoteError(msg)

    def end(self) -> None:
        self._child.end()

    def verdict(self, dropped: Collection[str]) -> Audited:
        """
        Look at everything once more, and return the findings but those of dropped events.

        Raises:
            DovecoteError: it says nothing.
        """
        self._require_running()
        self._child.end()
        done = subprocess.run(
            dovecote("audit", "--once", "--json", "--config", str(self._config)),
            env={**os.environ, _DSN: self._dsn},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if not done.stdout:
            msg = f"the auditor says nothing: {done.stderr[-2000:]}"
            raise DovecoteError(msg)
        told = json.loads(done.stdout)
        return Audited(
            kills=self.kills,
            matched=sum(each["matched"] for each in told["topics"].values()),
            dropped=sum(each["dropped"] for each in told["topics"].values()),
            findings=[
                each
                for each in told["findings"]
                if not (each["kind"] == "lost" and each["id"] in dropped)
            ],
            troubles=told["troubles"],
        )


@contextmanager
def beside(directory: Path, dsn: str, bootstrap: str, seed: int) -> Iterator[Beside]:
    """Run an auditor until the end of the block."""
    auditor = Beside(directory, dsn, bootstrap, seed)
    try:
        yield auditor
    finally:
        auditor.end()
