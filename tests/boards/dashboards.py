"""Make Grafana's dashboards of compose/observability/boards.yml."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.boards.rules import FOLDER

SOURCE = FOLDER / "boards.yml"

_COLUMNS = 24
_HEIGHTS = {"stat": 4, "table": 7, "timeseries": 8}
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_KEYS = {"title", "about", "kind", "unit", "red_from", "queries"}
_MOST_IN_A_ROW = 4


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the source."""

    board: str
    title: str
    about: str
    queries: dict[str, str]


def boards() -> list[dict[str, Any]]:
    """Return the boards of the source."""
    found: list[dict[str, Any]] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))["boards"]
    return found


def panels() -> Iterator[Panel]:
    """Yield every panel of every board."""
    for board in boards():
        for row in board["rows"]:
            for each in row["panels"]:
                if unknown := set(each) - _KEYS:
                    msg = f"{SOURCE}: {each['title']}: {', '.join(sorted(unknown))} is no field"
                    raise ValueError(msg)
                yield Panel(board["title"], each["title"], each["about"], each["queries"])


def asked(query: str, window: str = "1m") -> str:
    """Return a query as Grafana sends it with all values of its variables chosen."""
    return re.sub(r'=~"\$\w+"', '=~".*"', query.replace("$__rate_interval", window))


def files() -> dict[str, str]:
    """Return the text of each dashboard by the name of its file."""
    return {
        f"{board['uid']}.json": json.dumps(dashboard(board), indent=1) + "\n" for board in boards()
    }


def dashboard(board: dict[str, Any]) -> dict[str, Any]:
    """Return a dashboard in Grafana's form."""
    return {
        "uid": board["uid"],
        "title": board["title"],
        "description": board["about"],
        "tags": ["dovecote"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [
            {
                "title": "Dovecote",
                "type": "dashboards",
                "tags": ["dovecote"],
                "asDropdown": True,
                "includeVars": False,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "url": "",
                "tooltip": "",
            }
        ],
        "templating": {"list": list(_variables(board.get("variable")))},
        "panels": list(_placed(board["rows"])),
    }


def _variables(own: dict[str, str] | None) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
        "regex": "",
    }
    if own is not None:
        yield {
            "name": own["name"],
            "label": own["name"].capitalize(),
            "type": "query",
            "datasource": _DATASOURCE,
            "definition": f"label_values({own['metric']}, {own['name']})",
            "query": {
                "query": f"label_values({own['metric']}, {own['name']})",
                "refId": "variable",
            },
            "current": {"text": "All", "value": "$__all"},
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "hide": 0,
            "refresh": 2,
            "regex": "",
            "sort": 1,
        }


def _placed(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row in rows:
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
        yield {
            "id": number,
            "type": "row",
            "title": row["title"],
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        number, top = number + 1, top + 1
        for line in _lines(row["panels"]):
            width = _COLUMNS // len(line)
            height = max(_HEIGHTS[each.get("kind", "timeseries")] for each in line)
            for at, each in enumerate(line):
                place = {"h": height, "w": width, "x": at * width, "y": top}
                yield _panel(each, number, place)
                number += 1
            top += height


def _lines(given: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the panels of a row, line by line, no line much shorter than others."""
    lines = -(-len(given) // _MOST_IN_A_ROW)
    long, rest = -(-len(given) // lines), list(given)
    while rest:
        yield rest[:long]
        rest = rest[long:]


def _panel(each: dict[str, Any], number: int, place: dict[str, int]) -> dict[str, Any]:
    kind = each.get("kind", "timeseries")
    instant = kind != "timeseries"
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if "red_from" in each:
        steps.append({"color": "red", "value": each["red_from"]})
    defaults = {
        "unit": each.get("unit", "short"),
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if kind == "timeseries":
        defaults |= {"color": {"mode": "palette-classic"}, "min": 0}
    return {
        "id": number,
        "type": kind,
        "title": each["title"],
        "description": each["about"],
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS[kind],
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _DATASOURCE,
                "expr": query,
                "legendFormat": legend or "__auto",
                "instant": instant,
                "range": not instant,
                "format": "table" if kind == "table" else "time_series",
            }
            for at, (legend, query) in enumerate(each["queries"].items())
        ],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
    },
    "table": {"showHeader": True},
}
