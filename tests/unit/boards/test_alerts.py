"""Each alert fires in its trouble, and in no other; none fires at a restart or a deploy."""

import re
from pathlib import Path

import pytest
import yaml

from tests.boards.blips import BLIPS
from tests.boards.promtool import file_of, promtool
from tests.boards.rules import FILES, Alert, alerts, left_sides, seconds, shortened, shorter
from tests.boards.series import HEALTHY, Trouble
from tests.boards.troubles import TROUBLES
from tests.support.documents import ROOT, anchors

ALERTS = alerts()


def test_the_rules_are_taken() -> None:
    assert "FAILED" not in promtool("check", "rules", *FILES)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda each: each.what)
def test_what_lasts_is_said_by_its_alerts_and_no_other(trouble: Trouble, tmp_path: Path) -> None:
    assert trouble.fires
    tested = tmp_path / "test.yml"
    tested.write_text(file_of(FILES, [trouble], []), encoding="utf-8")
    promtool("test", "rules", tested)


@pytest.mark.parametrize("trouble", BLIPS, ids=lambda each: each.what)
def test_what_passes_fires_nothing_at_any_minute(trouble: Trouble, tmp_path: Path) -> None:
    assert not trouble.fires
    tested = tmp_path / "test.yml"
    tested.write_text(file_of(FILES, [], [trouble]), encoding="utf-8")
    promtool("test", "rules", tested)


def test_a_wrong_expectation_is_found(tmp_path: Path) -> None:
    wrong = Trouble("nothing", {}, frozenset({"DovecoteRelayParked"}))
    tested = tmp_path / "test.yml"
    tested.write_text(file_of(FILES, [wrong], []), encoding="utf-8")
    with pytest.raises(AssertionError, match="FAILED"):
        promtool("test", "rules", tested)


def test_every_alert_has_a_trouble_and_every_trouble_changes_something() -> None:
    assert {name for each in TROUBLES for name in each.fires} == {each.name for each in ALERTS}
    assert len({each.what for each in (*TROUBLES, *BLIPS)}) == len(TROUBLES) + len(BLIPS)
    for each in TROUBLES:
        changed = {name for name, value in each.series.items() if HEALTHY.get(name) != value}
        assert changed, each.what


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_says_what_it_is_about_what_to_do_and_where_to_read_on(alert: Alert) -> None:
    assert alert.severity in {"critical", "warning"}
    assert set(alert.annotations) == {"summary", "description", "runbook_url"}
    assert "$labels." in alert.annotations["summary"]
    assert len(alert.annotations["description"]) > 60
    path, _, anchor = alert.annotations["runbook_url"].partition("#")
    assert anchor == alert.name.lower()
    assert anchor in anchors(ROOT / path)


def test_the_names_of_alerts_are_unique() -> None:
    assert len({each.name for each in ALERTS}) == len(ALERTS)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("a > 1", ["a"]),
        ("time() - max by (x) (a) > 1 and b < 2", ["time() - max by (x) (a)", "b"]),
        ('sum by (x) (a{y="and > 1"}) > 1 unless b > 0', ['sum by (x) (a{y="and > 1"})']),
        ("(a or 0 * b) < 1", ["(a or 0 * b)"]),
    ],
)
def test_the_left_sides_of_an_alert_are_what_it_compares(expr: str, expected: list[str]) -> None:
    assert left_sides(expr) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("a_seconds > 60 and b > 60", "a_seconds > 2 and b > 60"),
        ("time() - a > 300", "time() - a > 10"),
        ("increase(a[15m]) > 0", "increase(a[30s]) > 0"),
        ("rate(a[1m]) > 0", "rate(a[6s]) > 0"),
    ],
)
def test_the_variant_for_tests_has_shorter_windows_and_bounds(expr: str, expected: str) -> None:
    assert shorter(expr, 30) == expected


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.stem)
def test_the_variant_for_tests_is_the_original_but_for_numbers(file: Path, tmp_path: Path) -> None:
    variant = tmp_path / file.name
    variant.write_text(shortened(file, 30), encoding="utf-8")
    promtool("check", "rules", variant)
    numbers = re.compile(r"[\d.]+(e\d+)?[smhd]?")
    for ours, theirs in zip(alerts([file]), alerts([variant]), strict=True):
        assert numbers.sub("", ours.expr) == numbers.sub("", theirs.expr)
        assert ours.annotations == theirs.annotations
        assert seconds(theirs.for_) <= 20
    assert yaml.safe_load(variant.read_text())["groups"]
