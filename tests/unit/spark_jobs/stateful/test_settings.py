"""Impossible settings are refused, and the documents list the settings that exist."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from spark_jobs.operators.settings import (
    DelaySettings,
    PairingSettings,
    SessionsSettings,
    WindowedSettings,
)
from spark_jobs.query.settings import StateSettings
from spark_jobs.stateful.settings import JOBS, DelayOutput
from tests.support.documents import ROOT, table

SIDES = {"x": {"topic": "tx"}, "y": {"topic": "ty"}}
OPERATORS: dict[str, dict[str, Any]] = {
    "pairing": {"within": "1m", "sides": SIDES},
    "sessions": {"gap": "1s"},
    "delay": {},
}


def _back_to(*entries: str) -> dict[str, object]:
    topics = {"topic": "out", "late_topic": "late", "dead_letter_topic": "dead"}
    return {**topics, "back_to": entries}


def _job(name: str = "pairing", **tables: Any) -> Any:
    given = {
        "kafka": {"bootstrap.servers": "x:1"},
        "source": {"topics": ["tx", "ty"]},
        "operator": OPERATORS[name],
        "output": {"topic": "out", "late_topic": "late", "dead_letter_topic": "dead"},
        "spark": {"query": "q", "checkpoint": "/c"},
    }
    return JOBS[name].model_validate({**given, **tables})


@pytest.mark.parametrize("name", list(OPERATORS))
def test_a_job_has_an_operator_of_its_kind(name: str) -> None:
    assert _job(name).operator.type == name
    assert _job(name).source.starting_offsets == ("latest" if name == "pairing" else "earliest")


def test_global_stream_time_has_one_bucket() -> None:
    assert _job("sessions").buckets() == 16
    assert _job("sessions", operator={"gap": "1s", "stream_time": "global"}).buckets() == 1


@pytest.mark.parametrize(
    ("name", "tables", "says"),
    [
        ("pairing", {"source": {"topics": ["tx"]}}, "those of the sides: tx, ty"),
        ("pairing", {"operator": {"type": "sessions"}}, "pairing was asked for"),
        ("delay", {"output": {"topic": "tx", "dead_letter_topic": "d"}}, "read and written"),
        ("delay", {"output": {"topic": "o", "dead_letter_topic": "o"}}, "different ones"),
        ("pairing", {"source": {"topics": ["t?"]}}, "pairing takes none: name the .* tx, ty"),
        ("pairing", {"source": {"topics": ["tx", "ty", "t*"]}}, "pairing takes none"),
        ("sessions", {"source": {"topics": ["o*"]}}, 'Add "!out" to the topics that are read'),
        ("sessions", {"source": {"topics": ["l*"]}}, 'Add "!late"'),
        (
            "sessions",
            {"source": {"topics": ["tx", "!ty"]}},
            "(?s)source.topics.*takes nothing out",
        ),
        (
            "delay",
            {"output": _back_to("t*")},
            "the source topic 'tx' is among .*\"!tx\" to output",
        ),
        ("delay", {"output": _back_to("d*")}, "the dead letter topic 'dead' is among"),
        ("delay", {"output": _back_to("l*")}, "the late topic 'late' is among"),
        ("delay", {"output": _back_to("a[")}, "(?s)output.back_to.*matches no topic"),
        ("delay", {"output": _back_to("a", "!b")}, "(?s)output.back_to.*takes nothing out"),
        ("delay", {"output": _back_to("tx")}, "read and written"),
        ("delay", {"kafka": {}}, "bootstrap.servers"),
        ("delay", {"kafka": {"bootstrap.servers": "x", "acks": "1"}}, "exactly once rests"),
        (
            "delay",
            {"spark": {"query": "q", "checkpoint": "c", "trigger": "available_now"}},
            "must be a duration",
        ),
        ("delay", {"state": {"buckets": 0}}, "state.buckets"),
        ("delay", {"transaction_timeout": "0.2ms"}, "from 1s to 596h"),
        ("delay", {"transaction_timeout": "720h"}, "from 1s to 596h"),
        ("delay", {"retry": {}}, "retry"),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, tables: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        _job(name, **tables)


def test_a_job_that_delays_writes_no_topic_that_only_a_pattern_names() -> None:
    job = _job("delay", output=_back_to("orders", "o*", "!other"))

    assert job.topics_written() == ("out", "late", "dead", "orders")
    assert job.topics().back_to == {"orders", "o*", "!other"}
    assert job.topics().read == {"tx", "ty"}


def _names(model: type[BaseModel], prefix: str = "") -> set[str]:
    return {prefix + name for name in model.model_fields if name != "type"}


def test_the_tables_of_the_operators_document_are_those_of_the_models() -> None:
    document = ROOT / "docs/operators.md"
    shared = _names(WindowedSettings)
    for number, names in enumerate(
        (
            shared,
            _names(PairingSettings) - shared,
            _names(SessionsSettings) - shared,
            _names(DelaySettings),
        ),
        start=1,
    ):
        rows = {row[0].strip("`") for row in table(document, "Settings", number=number)}
        assert rows == names


def test_the_table_of_the_stateful_jobs_document_is_that_of_the_models() -> None:
    rows = {row[0].strip("`") for row in table(ROOT / "docs/spark-operators.md", "Settings")}
    own = _names(DelayOutput, "output.") | _names(StateSettings, "state.")
    assert rows == own | {"source.starting_offsets", "spark.trigger"}
