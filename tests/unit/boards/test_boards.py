"""The dashboards are those of their source, in Grafana's form, and ask for metrics that exist."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import jsonschema
import pytest
import yaml
from prometheus_client import CollectorRegistry

from dedup.metrics import Metrics as ConsumerMetrics
from dovecote.audit.metrics import Metrics as AuditMetrics
from dovecote.push.metrics import Metrics as PushMetrics
from relay.metrics import Metrics as RelayMetrics
from spark_jobs.query.metrics import Metrics as SparkMetrics
from tests.boards.dashboards import asked, boards, dashboard, panels
from tests.boards.made import made
from tests.boards.promtool import promtool
from tests.boards.rules import FOLDER, alerts
from tests.support.documents import ROOT

UNITS = ["short", "s", "ops", "bytes", "percentunit"]
PLACE = {
    "type": "object",
    "required": ["h", "w", "x", "y"],
    "additionalProperties": False,
    "properties": {
        "h": {"type": "integer", "minimum": 1},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
    },
}
TARGET = {
    "type": "object",
    "required": ["refId", "expr", "datasource", "legendFormat", "instant", "range"],
    "properties": {
        "refId": {"pattern": "^[A-Z]$"},
        "expr": {"type": "string", "minLength": 1},
        "instant": {"type": "boolean"},
        "range": {"type": "boolean"},
        "format": {"enum": ["time_series", "table"]},
        "datasource": {"const": {"type": "prometheus", "uid": "${datasource}"}},
    },
}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "gridPos"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": ["row", "timeseries", "stat", "table"]},
        "title": {"type": "string", "minLength": 1},
        "gridPos": PLACE,
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
        "fieldConfig": {
            "type": "object",
            "required": ["defaults", "overrides"],
            "properties": {
                "defaults": {"type": "object", "properties": {"unit": {"enum": UNITS}}}
            },
        },
    },
    "if": {"properties": {"type": {"const": "row"}}},
    "then": {"required": ["collapsed", "panels"]},
    "else": {"required": ["description", "datasource", "fieldConfig", "options", "targets"]},
}
DASHBOARD = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time", "tags"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "items": PANEL},
        "templating": {
            "type": "object",
            "required": ["list"],
            "properties": {
                "list": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "type", "query"],
                        "properties": {"type": {"enum": ["datasource", "query"]}},
                    },
                }
            },
        },
    },
}
"""The part of Grafana's model of a dashboard that is used here."""

KINDS = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
NOT_OURS = {"up", "ALERTS"}
# The server of health has the state of its part, too, which boards show by other numbers.
STATES = {f"dovecote_{part}_state" for part in ("relay", "consumer", "push", "spark", "audit")}


def exposed() -> set[str]:
    """Return the names of all series that processes expose."""
    registries: Iterable[CollectorRegistry] = (
        RelayMetrics("x").registry,
        ConsumerMetrics("x").registry,
        PushMetrics().registry,
        SparkMetrics("x").registry,
        AuditMetrics().registry,
    )
    own = {
        metric.name + KINDS[metric.type]
        for registry in registries
        for metric in registry.collect()
    }
    tokens = {"expiry_seconds", "renewals_total", "failures_total"}
    of_parents = {"dovecote_process_up", "dovecote_process_restarts_total"}
    return own | of_parents | {f"dovecote_kafka_token_{each}" for each in tokens}


def named(expr: str) -> set[str]:
    """Return the names of the metrics in an expression."""
    return set(re.findall(r"\b(?:dovecote_\w+|up|ALERTS)\b", re.sub(r'"[^"]*"', "", expr)))


def test_every_file_that_is_made_is_as_its_source_says() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in made().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `python -m tests.boards`"


def test_no_file_is_left_over() -> None:
    wanted = set(made())
    for pattern in ("compose/observability/dashboards/*", "compose/helm/files/*/*"):
        assert {path for path in ROOT.glob(pattern) if path not in wanted} == set()


@pytest.mark.parametrize("board", boards(), ids=lambda each: each["uid"])
def test_a_dashboard_is_in_grafanas_form_and_its_panels_do_not_overlap(
    board: dict[str, object],
) -> None:
    found = json.loads(json.dumps(dashboard(board)))
    jsonschema.validate(found, DASHBOARD)
    assert len({each["id"] for each in found["panels"]}) == len(found["panels"])
    taken: set[tuple[int, int]] = set()
    for each in found["panels"]:
        place = each["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, each["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_a_variable_of_a_query_is_one_of_its_board() -> None:
    for board in boards():
        own = {board.get("variable", {}).get("name"), "__rate_interval"}
        text = json.dumps(board["rows"])
        assert set(re.findall(r"\$(\w+)", text)) <= own, board["title"]


def test_expressions_ask_for_metrics_that_are_exposed() -> None:
    exprs = [query for each in panels() for query in each.queries.values()]
    exprs += [each.expr for each in alerts()]
    assert {name for expr in exprs for name in named(expr)} - NOT_OURS <= exposed() | STATES


def test_every_metric_has_a_panel() -> None:
    shown = {name for each in panels() for query in each.queries.values() for name in named(query)}
    assert exposed() - shown == set()


def test_every_query_of_a_panel_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:number_{number}", "expr": asked(query)}
        for number, query in enumerate(
            query for each in panels() for query in each.queries.values()
        )
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", file)


def test_prometheus_takes_its_settings(tmp_path: Path) -> None:
    text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    own = tmp_path / "prometheus.yml"
    own.write_text(text.replace("/etc/prometheus/rules", str(FOLDER / "rules")))
    promtool("check", "config", own)


def test_grafana_is_given_the_datasource_and_the_folder_of_the_dashboards() -> None:
    folder = FOLDER / "grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards/dovecote.yml").read_text())["providers"]
    services = yaml.safe_load((ROOT / "compose/compose.yaml").read_text())["services"]
    mounts = dict(each.split(":")[:2] for each in services["grafana"]["volumes"])
    assert mounts["./observability/dashboards"] == provider["options"]["path"]
    assert mounts["./observability/grafana/provisioning"] == "/etc/grafana/provisioning"
    assert source["url"] == "http://prometheus:9090"
    assert services["prometheus"]["profiles"] == services["grafana"]["profiles"] == ["observe"]


def test_the_page_says_of_every_alarm_of_old_what_became_of_it() -> None:
    text = (ROOT / "docs/observability.md").read_text(encoding="utf-8")
    for name in (
        *("dovecote_relay_parked_crowded", "dovecote_spark_partitions_replayed_total"),
        *("dovecote_spark_misplaced_total", "dovecote_spark_restamped_total"),
        "dovecote_spark_state_open",
    ):
        assert f"`{name}`" in text
