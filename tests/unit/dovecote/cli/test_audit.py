"""`dovecote audit --once`: what it prints of a statement."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.audit.auditor import Auditor, Outcome
from dovecote.cli.main import app

SETTINGS = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[sources.outbox.shop]
dsn = "host=127.0.0.1 port=1"
"""


def test_equal_troubles_are_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles = ["Kafka is away", "Postgres is away", "Postgres is away"]
    statement = {"topics": {}, "consumers": {}, "findings": [], "troubles": troubles}
    monkeypatch.setattr(Auditor, "once", lambda _: Outcome(statement, 0, len(troubles)))
    file = tmp_path / "watch.toml"
    file.write_text(SETTINGS)

    done = CliRunner().invoke(app, ["audit", "--config", str(file), "--once"])

    assert (done.exit_code, done.output.splitlines()) == (
        3,
        [
            "not everything could be looked at: Kafka is away",
            "not everything could be looked at: Postgres is away",
            "0 findings so far",
        ],
    )
