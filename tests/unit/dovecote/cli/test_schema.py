"""`dovecote schema` prints what editors and other checks need."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from dedup.settings.consumer import ConsumeSettings
from dovecote.cli.main import app
from dovecote.cli.schema import Kind
from dovecote.console.settings import ConsoleSettings
from dovecote.observe.audit_settings import AuditSettings
from dovecote.observe.sources import WatchSettings
from dovecote.process.settings.loading import load
from dovecote.push.settings import PushSettings
from outbox import BadSettings
from relay.settings import RelaySettings
from spark_jobs.operators.aggregation.config import json_schema
from spark_jobs.query.settings import DedupSettings
from spark_jobs.stateful.settings import JOBS
from tests.support.documents import ROOT

MODELS: dict[str, type[BaseModel]] = {
    "audit": AuditSettings,
    "console": ConsoleSettings,
    "consume": ConsumeSettings,
    "dedup": DedupSettings,
    "push": PushSettings,
    "relay": RelaySettings,
    "watch": WatchSettings,
    **JOBS,
}

BROKERS = '[brokers.default]\n"bootstrap.servers" = "broker:9092"\n'


def printed(kind: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["schema", kind])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each example of a settings file in the documents."""
    for path in sorted(ROOT.glob("docs/**/*.md")):
        for text in re.findall(
            r"^```toml[^\n]*\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
        ):
            yield text, tomllib.loads(text)


class Environ(dict[str, str]):
    """Each variable that a file points to is set."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "dbname=x" if "DSN" in name else "0123456789abcdef" * 4

    def get(self, name: str, _: Any = None) -> Any:
        return self[name]


def test_the_schema_of_an_aggregation_is_printed() -> None:
    assert printed("aggregation") == json_schema()


def test_another_schema_is_bad_usage() -> None:
    assert CliRunner().invoke(app, ["schema", "nothing"]).exit_code == 2


def test_each_settings_file_has_a_schema() -> None:
    assert set(Kind) - {"aggregation"} == MODELS.keys()


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_loaded_fits_the_schema(kind: str, tmp_path: Path) -> None:
    check = jsonschema.Draft202012Validator(printed(kind))
    loaded = 0
    rest = {
        "X_DSN": "dbname=x",
        "X_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    }
    environ = Environ(SHOP_TOKEN_HASH=f"sha256:{'0' * 64}")
    environ.update(
        {
            name: text
            for name, text in rest.items()
            if name[2:].partition("__")[0].lower() in MODELS[kind].model_fields
        }
    )
    for text, given in examples():
        file = tmp_path / "a.toml"
        needed = "" if kind != "push" or "brokers" in given else BROKERS
        file.write_text(f"{text}\n{needed}")
        try:
            load(MODELS[kind], file, prefix="X", environ=environ)
        except BadSettings:
            continue
        loaded += 1
        assert [error.message for error in check.iter_errors(given)] == [], text
    assert loaded > 0


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("relay", 'dns = "dbname=x"'),
        ("relay", "[http]\nport = 70000"),
        ("relay", '[wal]\nheartbeat = "10 seconds"'),
        ("consume", 'topics = "orders"'),
        ("consume", '[kafka]\n"bootstrap.servers" = ["a"]'),
        ("push", "[http]\nprot = 1"),
        ("watch", "[sources.outbox.shop]\ndns = 1"),
    ],
)
def test_what_is_wrong_does_not_fit(kind: str, wrong: str) -> None:
    check = jsonschema.Draft202012Validator(printed(kind))
    assert not check.is_valid(tomllib.loads(wrong))


def test_settings_say_what_they_mean_and_may_be_pointers() -> None:
    found = printed("relay")
    assert (
        "Port; 0: any free one"
        in found["$defs"]["HttpSettings"]["properties"]["port"]["description"]
    )
    check = jsonschema.Draft202012Validator(found)
    assert check.is_valid({"dsn": {"env": "DSN"}, "http": {"port": {"env": "PORT"}}})
    assert found["$defs"]["WalSettings"]["properties"]["heartbeat"]["default"] == "10s"
