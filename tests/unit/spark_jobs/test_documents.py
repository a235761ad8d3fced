"""The settings in the document are those of the models."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dovecote.process.settings.loading import load
from spark_jobs.query.settings import PREFIX, DedupSettings
from spark_jobs.stateful.settings import DelayJob, recirculation
from tests.support.documents import ROOT, blocks, table

DOCUMENT = ROOT / "docs/spark-dedup.md"
# Its table is in the document on the policies.
ELSEWHERE = {"operator"}
# Their defaults are no constants.
IN_WORDS = {"spark.master", "recirculation.checkpoint"}


def _fields(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= _fields(kind, f"{name}.")
        elif name not in ELSEWHERE:
            found[prefix + name] = field
    return found


def _shown(default: object) -> str:
    match default:
        case timedelta():
            seconds = round(default.total_seconds())
            return f'"{seconds // 60}m"' if seconds > 60 else f'"{seconds}s"'
        case None:
            return "none"
        case ():
            return "[]"
        case str():
            return f'"{default}"'
        case _:
            return str(default)


def test_the_table_of_settings_is_that_of_the_models() -> None:
    rows = {row[0].strip("`"): row[1].strip("`") for row in table(DOCUMENT, "Settings")}
    fields = _fields(DedupSettings)

    assert set(rows) == set(fields)
    for name, field in fields.items():
        if field.is_required():
            assert rows[name] == "required", name
        elif name not in IN_WORDS:
            default = field.get_default(call_default_factory=True)
            assert rows[name] == _shown(default), name


def test_every_file_that_is_shown_is_taken(tmp_path: Path) -> None:
    files = {block.name: block.text for block in blocks(DOCUMENT, "toml") if block.name}
    files["recirculating.toml"] += files["orders.toml"]
    for name in ("recirculating.toml", "delay.toml"):
        (tmp_path / name).write_text(files[name])

    first = load(DedupSettings, tmp_path / "recirculating.toml", prefix=PREFIX, environ={})
    apart = load(DelayJob, tmp_path / "delay.toml", prefix=PREFIX, environ={})

    # Together or apart, it is one query.
    second = recirculation(first)
    for spark in (second.spark, apart.spark):
        assert (spark.query, spark.checkpoint, spark.pause()) == (
            "orders.delay",
            "/var/lib/dovecote/orders.delay",
            timedelta(seconds=1),
        )
    assert second.source.topics == apart.source.topics
    assert second.topics() == replace(apart.topics(), back_to=frozenset({"orders"}))
    assert second.buckets() == apart.buckets()
