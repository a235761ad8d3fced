"""Read the alerts of compose/observability, and make a variant of them that tests can wait for."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.documents import ROOT

FOLDER = ROOT / "compose/observability"
FILES = sorted((FOLDER / "rules").glob("*.yml"))

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WINDOW = re.compile(r"\[(\d+)([smhd])\]")
_COMPARED = re.compile(r"(==|!=|<=|>=|<|>)\s*(-?[\d.e]+)\s*$")
# A rate needs two samples.
_SHORTEST_WINDOW = 6


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule."""

    part: str
    """The name of its file."""
    name: str
    expr: str
    for_: str
    severity: str
    annotations: dict[str, str]


def alerts(files: list[Path] = FILES) -> list[Alert]:
    """Return all alerts, in the order of the files."""
    return [
        Alert(
            file.stem,
            rule["alert"],
            rule["expr"].strip(),
            rule.get("for", "0s"),
            rule["labels"]["severity"],
            rule["annotations"],
        )
        for file in files
        for group in _groups(file)
        for rule in group["rules"]
    ]


def _groups(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    return found


def left_sides(expr: str) -> list[str]:
    """
    Return what an alert compares with numbers: each returns data, whether or not it fires.

    `unless` takes alerts away, and may have nothing on its right.
    """
    wanted = re.split(r"\bunless\b", _flat(expr), maxsplit=1)[0]
    return [_restored(_COMPARED.sub("", each).strip(), expr) for each in _joined(wanted)]


def _joined(flat: str) -> list[str]:
    return [each.strip() for each in re.split(r"\band\b", flat)]


def _flat(expr: str) -> str:
    """Return an expression with each text in brackets replaced by its place."""
    found, depth, began = [], 0, 0
    for at, letter in enumerate(expr):
        if letter in "({[":
            began = at if not depth else began
            depth += 1
        elif letter in ")}]":
            depth -= 1
            if not depth:
                found.append(f"\0{began}:{at + 1}\0")
        elif not depth:
            found.append(letter)
    return "".join(found)


def _restored(flat: str, expr: str) -> str:
    return re.sub(r"\0(\d+):(\d+)\0", lambda place: expr[int(place[1]) : int(place[2])], flat)


def shortened(file: Path, factor: float) -> str:
    """Return a file of rules whose waits, windows and bounds in seconds are shorter."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    for group in content["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = shorter(rule["expr"].strip(), factor)
            rule["for"] = f"{round(seconds(rule.get('for', '0s')) / factor)}s"
    return yaml.safe_dump(content, sort_keys=False, width=1_000)


def shorter(expr: str, factor: float) -> str:
    """Return an expression with shorter windows, and shorter bounds where seconds are compared."""
    bounds = [_restored(each, expr) for each in _conjuncts(_flat(expr))]
    for each in bounds:
        found = _COMPARED.search(each)
        if found and ("_seconds" in each or "time()" in each):
            less = f"{each[: found.start(2)]}{float(found[2]) / factor:g}"
            expr = expr.replace(each, less)
    return _WINDOW.sub(lambda window: f"[{_window(window, factor)}s]", expr)


def _conjuncts(flat: str) -> Iterator[str]:
    for each in re.split(r"\b(?:and|unless)\b", flat):
        yield each.strip()


def _window(found: re.Match[str], factor: float) -> int:
    return max(_SHORTEST_WINDOW, round(int(found[1]) * _SECONDS[found[2]] / factor))


def seconds(text: str) -> int:
    """Return the seconds of a duration of Prometheus with one unit."""
    return int(text[:-1]) * _SECONDS[text[-1]]
