"""The names, defaults and examples in the document on consuming are those of the code."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dedup.metrics import Metrics
from dedup.settings.consumer import PREFIX, ConsumerSettings, ConsumeSettings
from dedup.settings.properties import FIXED
from dovecote.process.settings.loading import load
from dovecote.process.settings.models import HttpSettings
from tests.support.documents import ROOT, blocks, code_spans, counted, documented, table

CONSUME = ROOT / "docs/consume.md"
BY_OTHERS = {
    "http.port": "not served",
    "http.hosts": "none",
    "filter": "all pass",
    "partitions": "none",
    "message": "none",
    "registry": "none",
    "instance": "none",
    "handler": "none",
}


def expected_settings() -> list[str]:
    told = documented(ROOT / "dedup/settings/consumer.py")
    http = documented(ROOT / "dovecote/process/settings/models.py")
    own = ConsumeSettings.model_fields.keys() - ConsumerSettings.model_fields.keys() - {"http"}
    return [
        *rows(
            ConsumerSettings,
            told["ConsumerSettings"],
            only=ConsumerSettings.model_fields.keys() - {"retries", "inbox"},
        ),
        *rows(ConsumeSettings, told["ConsumeSettings"], only=own),
        *rows(HttpSettings, http["HttpSettings"], prefix="http."),
    ]


def rows(
    model: type[BaseModel],
    told: dict[str, str],
    *,
    prefix: str = "",
    only: set[str] | None = None,
) -> list[str]:
    return [
        f"| `{prefix}{name}` | {default(prefix + name, info)} | {told[name]} |"
        for name, info in model.model_fields.items()
        if only is None or name in only
    ]


def default(name: str, info: FieldInfo) -> str:
    if name in BY_OTHERS:
        return BY_OTHERS[name]
    if info.is_required():
        return "required"
    match info.default:
        case timedelta() as time:
            return f'`"{time.total_seconds():g}s"`'
        case str(text):
            return f'`"{text}"`'
        case other:
            return f"`{other}`"


def expected_metrics() -> dict[str, str]:
    return {counted(metric): metric.documentation for metric in Metrics("x").registry.collect()}


def test_the_table_of_settings_is_that_of_the_classes() -> None:
    shown = ["| " + " | ".join(line) + " |" for line in table(CONSUME, "Settings")]
    assert shown == expected_settings()


def test_the_table_of_metrics_is_what_a_consumer_exposes() -> None:
    shown = {row[0].strip("`"): row[1] for row in table(CONSUME, "Watching it")}
    assert shown == expected_metrics()


def test_the_properties_that_cannot_be_set_are_those_that_are_refused() -> None:
    sentence = CONSUME.read_text().partition("you cannot set")[2].partition(": they follow")[0]
    assert set(code_spans(sentence)) == FIXED


@pytest.mark.parametrize("number", range(len(blocks(CONSUME, "toml"))))
def test_every_toml_example_is_taken(number: int, tmp_path: Path) -> None:
    text = blocks(CONSUME, "toml")[number].text
    config = tmp_path / "consume.toml"
    config.write_text(text)
    environ = dict.fromkeys(re.findall(r'env = "(\w+)"', text), "secret")
    settings = load(ConsumeSettings, config, prefix=PREFIX, environ=environ)
    assert settings.group == "shipping"
