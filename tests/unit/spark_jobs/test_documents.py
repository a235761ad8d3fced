"""What the document says of settings is what the models have."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from spark_jobs.settings import DedupSettings
from tests.documents import ROOT, table

DOCUMENT = ROOT / "docs/spark-dedup.md"
# Its table is in the document of the policies.
ELSEWHERE = {"operator"}


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
        elif name != "spark.master":  # said in words: the command's default, not the model's
            default = field.get_default(call_default_factory=True)
            assert rows[name] == _shown(default), name
