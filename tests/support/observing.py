"""Run a Prometheus with the rules of compose/observability, on processes of tests."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import yaml

from dovecote.devstack.places import free_port
from tests.boards.dashboards import asked, panels
from tests.boards.promtool import program
from tests.boards.rules import FILES, alerts, left_sides, shortened, shorter
from tests.support.waiting import patient, until

FACTOR = 30.0
"""How much shorter the waits, windows and bounds in seconds of the rules are here."""


class Observing:
    """A Prometheus that reads targets each second."""

    def __init__(self, folder: Path, port: int) -> None:
        self._targets = folder / "targets.json"
        self._found: dict[str, list[str]] = {}
        self._port = port
        self.watch({})

    def watch(self, jobs: Mapping[str, Sequence[str | int]]) -> None:
        """Read these ports, or addresses, of jobs as well."""
        for job, ports in jobs.items():
            self._found[job] = [
                each if isinstance(each, str) else f"127.0.0.1:{each}" for each in ports
            ]
        groups = [
            {"targets": targets, "labels": {"job": job}} for job, targets in self._found.items()
        ]
        # Prometheus must not read a file that is half written.
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(groups), encoding="utf-8")
        new.replace(self._targets)

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now."""
        found: list[dict[str, Any]] = self._get(f"query?query={quote(expr)}")["result"]
        return found

    def firing(self) -> list[dict[str, Any]]:
        """Return the alerts that fire, with their labels and annotations."""
        return [each for each in self._get("alerts")["alerts"] if each["state"] == "firing"]

    def is_up(self) -> bool:
        try:
            return bool(self._get("status/runtimeinfo"))
        except OSError:
            return False

    def _get(self, path: str) -> Any:
        with urlopen(
            f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=patient(20)
        ) as answer:
            return json.load(answer)["data"]


@contextmanager
def observing(folder: Path) -> Iterator[Observing]:
    """Run a Prometheus with the variant of the rules that tests can wait for."""
    command = program("prometheus")
    for file in FILES:
        (folder / file.name).write_text(shortened(file, FACTOR), encoding="utf-8")
    targets = {"files": [str(folder / "targets.json")], "refresh_interval": "1s"}
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / file.name) for file in FILES],
        "scrape_configs": [{"job_name": "tests", "file_sd_configs": [targets]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    port = free_port()
    watched = Observing(folder, port)
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                command,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(watched.is_up, within=30, what="Prometheus answers")
        yield watched
    finally:
        process.terminate()
        process.wait(patient(20))


def of_parts(*parts: str) -> dict[str, str]:
    """Return all expressions of panels and rules about these parts, by what they belong to."""
    found = {
        f"{each.board}: {each.title}, {legend or 'the only one'}": asked(query, "10s")
        for each in panels()
        for legend, query in each.queries.items()
    }
    for alert in alerts():
        for number, left in enumerate(left_sides(shorter(alert.expr, FACTOR))):
            found[f"{alert.name}, {number + 1}"] = left
    others = {"relay", "consumer", "push", "spark", "kafka_token", "audit", "process_"}
    others -= set(parts)
    return {
        name: expr
        for name, expr in found.items()
        if not any(f"dovecote_{other}" in expr for other in others)
    }


def require_data(prometheus: Observing, expressions: Mapping[str, str]) -> None:
    """Wait until each expression has had data; fail, naming those that never had any."""
    missing = dict(expressions)

    def has_data() -> bool:
        for name, expr in list(missing.items()):
            if prometheus.query(expr):
                del missing[name]
        return not missing

    try:
        until(has_data, within=10, what="data of every expression")
    except AssertionError as error:
        msg = f"without data: {missing}"
        raise AssertionError(msg) from error


def fired(prometheus: Observing) -> set[tuple[str, str]]:
    """Return which alerts fire, each with what it is about."""
    names = ("outbox", "group", "subscription", "provider", "query", "job")
    return {
        (
            each["labels"]["alertname"].removeprefix("Dovecote"),
            next(each["labels"][name] for name in names if name in each["labels"]),
        )
        for each in prometheus.firing()
    }


def all_fire(prometheus: Observing, wanted: set[tuple[str, str]]) -> None:
    """Wait until each of these alerts has fired, whatever its neighbours do."""
    seen: set[tuple[str, str]] = set()

    def have_fired() -> bool:
        for each in prometheus.firing():
            said = "".join(each["annotations"].values())
            assert "no value" not in said, said
            assert "error" not in each["annotations"]["summary"], said
        seen.update(fired(prometheus))
        return wanted <= seen

    try:
        until(have_fired, within=60, what="the alerts")
    except AssertionError as error:
        msg = f"silent: {sorted(wanted - seen)}, fired: {sorted(seen)}"
        raise AssertionError(msg) from error
