"""HOCON as its specification has it, where pyhocon alone differs."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import StrictBool, StrictInt, StrictStr

from dovecote.process.settings.values import Duration
from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.config import Model
from spark_jobs.operators.aggregation.loading import checked, parse

FILE = Path("step.conf")


class Inner(Model):
    """A table."""

    count: StrictInt | None = None


class Example(Model):
    """One setting of each kind."""

    count: StrictInt = 0
    is_on: StrictBool = False
    name: StrictStr = ""
    inner: Inner = Inner()
    numbers: tuple[StrictInt, ...] = ()
    open: Mapping[str, Any] = {}
    wait: Duration = timedelta(0)


def example(text: str, file: Path = FILE) -> Example:
    return checked(Example, parse(text, file), file)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("count: ${N}", Example(count=60_000)),
        ("count: 5\ncount: ${?N}", Example(count=60_000)),
        ("count: 5\ncount: ${?NOT_THERE}", Example(count=5)),
        ("x = ${N}\n", None),
        ("count: ${N}0", Example(count=600_000)),
        ('count: "5"', Example(count=5)),
        ("isOn: ${B}", Example(isOn=True)),
        ("isOn: off", Example(isOn=False)),
        ("inner { count: ${N} }", Example(inner=Inner(count=60_000))),
        ("numbers: [${N}, 2, ${Z}]", Example(numbers=(60_000, 2, 7))),
        ("name: ${N}", Example(name="60000")),
        ("name: ${Z}", Example(name="007")),
        ("name: ${B}, count: ${N}, isOn: ${B}", Example(name="true", count=60_000, isOn=True)),
        ("open { a: ${N} }", Example(open={"a": "60000"})),
        ("count: ${WORD}", None),
        ("count: ${EMPTY}", None),
        ("isOn: ${N}", None),
    ],
)
def test_a_text_is_a_number_or_a_truth_where_one_is_wanted(
    monkeypatch: pytest.MonkeyPatch, text: str, meant: Example | None
) -> None:
    given = {"N": "60000", "B": "true", "Z": "007", "WORD": "many", "EMPTY": ""}
    monkeypatch.setenv("DOVECOTE_HOCON", "environment")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    if meant is None:
        with pytest.raises(BadSettings):
            example(text)
    else:
        assert example(text) == meant


def test_in_json_and_yaml_a_text_is_a_text() -> None:
    for text, file in (('{"count": "5"}', "a.json"), ("count: '5'", "a.yaml")):
        with pytest.raises(BadSettings, match="count: must be a whole number"):
            example(text, Path(file))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"\u0041\u00e9"', "Aé"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\/\b\f\n\r\t\"\\"', '/\b\f\n\r\t"\\'),
        (r'"\\u0041"', r"\u0041"),
        (r'"\u005cu0041"', r"\u0041"),
        (r'"""\u0041\n"""', r"\u0041\n"),
        (r'"a" "\u0041"', "a A"),
    ],
)
def test_escapes_are_those_of_json(tmp_path: Path, written: str, meant: str) -> None:
    assert parse(f"a: {written}", FILE) == {"a": meant}
    (tmp_path / "other.conf").write_text(f"a: {written}")
    assert parse('include "other.conf"', tmp_path / "step.conf") == {"a": meant}


def test_names_may_have_escapes_too() -> None:
    assert parse(r'"k\u0041": 1', FILE) == {"kA": 1}


@pytest.mark.parametrize("written", [r'"\u00"', r'"\ud83d"', r'"\uzzzz"', r'"k\ud83d x"'])
def test_half_an_escape_is_an_error(written: str) -> None:
    for text in (f"a: {written}", f"{written}: 1"):
        with pytest.raises(BadSettings, match=r"step\.conf is not HOCON: .*\\u"):
            parse(text, FILE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('include package("nope:x.conf")', "include package: No module named 'nope'"),
        ('include package("nope.sub:x.conf")', "include package: No module named 'nope'"),
        ('include package("json:x.conf")', "include package: Can't find x.conf in package:json"),
        ('include package("this:x.conf")', "an `include` finds nothing"),
        ('include package("__main__:x.conf")', "is not HOCON: "),
        ('include package(":x.conf")', "is not HOCON: "),
        ('include package("x.conf")', "Expected format is 'PACKAGE:PATH'"),
        ('include "*.nothing"', "an `include` finds nothing"),
        ('include required("away.conf")', "No such file"),
        ('include classpath("a.conf")', "is not HOCON: Expected"),
    ],
)
def test_what_cannot_be_included_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setenv("DOVECOTE_HOCON", "includes")
    with pytest.raises(BadSettings, match="is not HOCON") as refused:
        parse(text, tmp_path / "step.conf")
    said = str(refused.value)
    assert says in said
    assert "\n" not in said
    assert "pip install" not in said
    assert len(said) < 1000


def test_a_file_of_a_package_may_be_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_conf").mkdir()
    (tmp_path / "shop_conf/x.conf").write_text(r'a: "\u0041"')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DOVECOTE_HOCON", "includes")
    assert parse('include package("shop_conf:x.conf")', FILE) == {"a": "A"}


@pytest.mark.parametrize(
    "text",
    [
        'include url("http://127.0.0.1:9/x.conf")',
        'include "http://127.0.0.1:9/x.conf"',
        'include "file:///etc/hostname"',
        'include url("file:///etc/hostname")',
        'include file("/etc/hostname")',
        'include "../outside.conf"',
        'include "link.conf"',
        'include required(file("../outside.conf"))',
        'include "../*.conf"',
        'include package("shop_conf:x.conf")',
        'a { b: 1, include "../outside.conf" }',
        'include "inner/up.conf"',
    ],
)
def test_a_file_reaches_nothing_outside_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    folder = tmp_path / "steps"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "outside.conf").write_text("secret: 1")
    (folder / "link.conf").symlink_to(tmp_path / "outside.conf")
    (folder / "inner/up.conf").write_text('include "../../outside.conf"')
    (tmp_path / "shop_conf").mkdir()
    (tmp_path / "shop_conf/x.conf").write_text("secret: 1")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadSettings, match=r"is not allowed; .* set DOVECOTE_HOCON=includes"):
        parse(text, folder / "step.conf")


def test_the_environment_is_read_only_if_the_operator_lets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "hidden")
    for text in ("a: ${SHOP_SECRET}", "a: x${SHOP_SECRET}", "SHOP_SECRET: ${SHOP_SECRET}"):
        with pytest.raises(BadSettings, match="is read only with DOVECOTE_HOCON=environment"):
            parse(text, FILE)
    assert parse("a: 1, a: ${?SHOP_SECRET}", FILE) == {"a": 1}
    monkeypatch.setenv("DOVECOTE_HOCON", "environment, includes")
    assert parse("a: ${SHOP_SECRET}", FILE) == {"a": "hidden"}
    monkeypatch.setenv("DOVECOTE_HOCON", "all")
    with pytest.raises(BadSettings, match="DOVECOTE_HOCON is `environment`, `includes` or both"):
        parse("a: 1", FILE)


def test_a_period_is_a_duration_and_no_text() -> None:
    assert example("wait: 90 s").wait == timedelta(seconds=90)
    assert example('wait: "90s"').wait == timedelta(seconds=90)
    with pytest.raises(BadSettings, match="name: must be text"):
        example("name: 5 days")
    with pytest.raises(BadSettings, match="write days"):
        example("wait: 2 months")


def test_nothing_is_null_and_names_with_dots_are_paths() -> None:
    found = parse('a: null, b.c: 1, "b.d": 2', FILE)
    assert found == {"a": None, "b": {"c": 1}, "b.d": 2}
