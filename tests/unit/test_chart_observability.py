"""The chart's alerts and boards are those of compose/observability, and off by default."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from tests.boards.promtool import promtool
from tests.boards.rules import FILES, FOLDER
from tests.support.charts import Object, documented, one, rendered, template
from tests.support.documents import ROOT, anchors, blocks

MONITOR = {
    "type": "object",
    "required": ["selector", "podMetricsEndpoints"],
    "additionalProperties": False,
    "properties": {
        "selector": {"type": "object", "required": ["matchLabels"]},
        "podMetricsEndpoints": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["port", "path", "interval"],
                "additionalProperties": False,
                "properties": {
                    **{key: {"type": "string"} for key in ("port", "path", "interval")},
                    "authorization": {"type": "object"},
                    "relabelings": {"type": "array"},
                },
            },
        },
    },
}
RULES = {
    "type": "object",
    "required": ["groups"],
    "additionalProperties": False,
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "rules"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "rules": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["alert", "expr", "labels", "annotations"],
                        },
                    },
                },
            },
        }
    },
}


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    """The values of the manual's page about deploying, with those of the page about alerts."""
    (block,) = blocks(ROOT / "docs/observability.md", "yaml")
    observing: dict[str, Any] = yaml.safe_load(block.text)
    return {**documented(), **observing}


def kinds(objects: list[Object]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for each in objects:
        found.setdefault(each["kind"], []).append(each)
    return found


def test_nothing_of_it_is_there_unless_it_is_asked_for() -> None:
    found = kinds(rendered(documented()))
    assert not {"PrometheusRule", "PodMonitor"} & set(found)
    assert not [each for each in found["ConfigMap"] if "board" in each["metadata"]["name"]]


def test_the_rules_are_the_ones_of_the_folder_with_the_runbooks_of_the_values(
    values: dict[str, Any], tmp_path: Any
) -> None:
    objects = rendered(values)
    for file in FILES:
        found = one(objects, "PrometheusRule", f"shop-dovecote-{file.stem}")
        jsonschema.validate(found["spec"], RULES)
        expected = yaml.safe_load(file.read_text(encoding="utf-8"))
        for group in expected["groups"]:
            for rule in group["rules"]:
                page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
                assert anchor in anchors(ROOT / page)
                runbooks = values["prometheusRule"]["runbooks"]
                rule["annotations"]["runbook_url"] = f"{runbooks}#{anchor}"
        assert found["spec"] == expected
        rules = tmp_path / file.name
        rules.write_text(yaml.safe_dump(found["spec"]), encoding="utf-8")
        promtool("check", "rules", rules)


def test_each_board_is_a_config_map_that_the_sidecar_finds(values: dict[str, Any]) -> None:
    objects = rendered(values)
    for file in (FOLDER / "dashboards").glob("*.json"):
        name = f"shop-dovecote-board-{file.stem.removeprefix('dovecote-')}"
        found = one(objects, "ConfigMap", name)
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(found["data"][file.name]) == json.loads(file.read_text())
        assert len(found["data"][file.name]) < 500_000


def test_pods_are_asked_themselves_with_a_job_that_the_alerts_know(
    values: dict[str, Any],
) -> None:
    values = {**values, "serviceMonitor": {"enabled": False}, "podMonitor": {"enabled": True}}
    found = kinds(rendered(values))
    assert "ServiceMonitor" not in found
    names = {each["metadata"]["name"] for each in found["PodMonitor"]}
    assert names == {f"shop-dovecote-{part}" for part in ("relay", "push", "consumer-billing")}
    for each in found["PodMonitor"]:
        jsonschema.validate(each["spec"], MONITOR)
        (endpoint,) = each["spec"]["podMetricsEndpoints"]
        assert endpoint["relabelings"] == [
            {"targetLabel": "job", "replacement": each["metadata"]["name"]}
        ]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"podMonitor": {"enabled": True}}, "both enabled"),
        ({"prometheusRule": {"enabled": True, "runbooks": "a#b"}}, "runbooks"),
        ({"dashboards": {"enable": True}}, "enable"),
    ],
)
def test_values_that_cannot_work_are_refused(
    values: dict[str, Any], changed: dict[str, Any], says: str
) -> None:
    done = template({**values, **changed})
    assert done.returncode != 0
    assert says in done.stderr
