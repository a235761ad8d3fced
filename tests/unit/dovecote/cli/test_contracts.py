"""`dovecote contracts`: files, revisions, registries and statuses."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from dovecote.cli.main import app
from dovecote.contracts.registry import RegistryRefused
from outbox import BadSettings
from tests.support.registered import Registry, answering

SHOP = """
    from dataclasses import dataclass
    from decimal import Decimal

    from outbox import event

    @dataclass
    class Line:
        price: Decimal

    @event("OrderPlaced", topic="orders", key="order_id", version=2)
    @dataclass
    class OrderPlaced:
        order_id: str
        lines: list[Line]

    @event("Drafted", topic="drafts", key=lambda each: each.id)
    @dataclass
    class Drafted:
        id: int
"""

Write = Callable[[str], None]


def contracts(*words: str) -> Result:
    return CliRunner().invoke(app, ["contracts", *words])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return what writes the module `shop_events` in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text: str) -> None:
        sys.modules.pop("shop_events", None)
        Path("shop_events.py").write_text(dedent(text), encoding="utf-8")

    write(SHOP)
    yield write
    sys.modules.pop("shop_events", None)


def git(*words: str) -> None:
    given = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *given, *words]
    subprocess.run(command, check=True, capture_output=True)


def test_the_file_is_the_same_for_the_same_classes_and_nothing_has_changed(shop: Write) -> None:
    first = contracts("export", "--module", "shop_events")
    assert (first.exit_code, first.output) == (0, "contracts.json: 2 contracts\n")
    text = Path("contracts.json").read_text()
    entries = json.loads(text)["contracts"]
    assert [(each["topic"], each["type"], each["version"]) for each in entries] == [
        ("drafts", "Drafted", None),
        ("orders", "OrderPlaced", 2),
    ]
    assert [each["key"] for each in entries] == ["function <lambda>", "order_id"]
    assert entries[1]["class"] == "shop_events.OrderPlaced"
    shop(SHOP)
    assert contracts("export", "-m", "shop_events").output.endswith("as before\n")
    assert Path("contracts.json").read_text() == text
    checked = contracts("check", "-m", "shop_events", "--current")
    assert (checked.exit_code, checked.output) == (0, "no change\n")


def test_a_break_ends_with_1_and_names_the_place_and_those_who_break(shop: Write) -> None:
    contracts("export", "-m", "shop_events")
    shop(SHOP.replace("price: Decimal", "price: Decimal\n        tax: int"))
    found = contracts("check", "-m", "shop_events")
    assert found.exit_code == 1
    assert found.output.splitlines() == [
        "BREAKS  orders/OrderPlaced v2  value.lines[].tax: it is added, and required",
        "        new readers of old records: breaks; old readers of new records: fine",
        "        old records lack it",
        "1 of 1 change breaks readers",
    ]
    told = contracts("check", "-m", "shop_events", "--json", "--compatibility", "forward")
    assert told.exit_code == 0
    assert json.loads(told.output) == {
        "contract": "orders/OrderPlaced v2",
        "topic": "orders",
        "path": "value.lines[].tax",
        "change": "it is added, and required",
        "backward": "breaks",
        "forward": "fine",
        "why": "old records lack it",
        "compatibility": "forward",
        "breaks": False,
    }


def test_a_topic_may_have_a_setting_of_its_own(shop: Write) -> None:
    Path("watch.toml").write_text(
        '[contracts]\nmodules = ["shop_events"]\ncompatibility = "full"\n'
        '[contracts.topics]\ndrafts = "none"\n'
    )
    contracts("export", "-c", "watch.toml")
    shop(SHOP.replace("id: int", "id: str"))
    found = contracts("check", "-c", "watch.toml")
    assert found.exit_code == 0
    assert "passes  drafts/Drafted  value.id: it was an integer, and is a string" in found.output
    shop(SHOP.replace("lines: list[Line]", "lines: list[Line] | None"))
    assert contracts("check", "-c", "watch.toml").exit_code == 1
    assert contracts("check", "-c", "watch.toml", "--compatibility", "backward").exit_code == 0


def test_a_revision_of_git_is_the_other_side(shop: Write) -> None:
    git("init", "-b", "main")
    git("commit", "--allow-empty", "-m", "before")
    git("tag", "before")
    contracts("export", "-m", "shop_events")
    git("add", ".")
    git("commit", "-m", "first")
    shop(SHOP.replace("order_id: str", "order_id: int"))
    contracts("export", "-m", "shop_events")
    assert contracts("check", "-m", "shop_events").exit_code == 0
    for words in (["-m", "shop_events", "--against", "main"], ["--against", "HEAD"]):
        found = contracts("check", *words)
        assert found.exit_code == 1
        assert "value.order_id: it was a string, and is an integer" in found.output
    for revision, said in (
        ("nowhere", "git has no contracts.json in 'nowhere': .*; fetch the revision, or correct"),
        ("--all", "is no revision"),
        ("before", "git has no contracts.json in 'before': .*; the file has to be there before"),
    ):
        raised = contracts("check", f"--against={revision}").exception
        assert isinstance(raised, BadSettings)
        assert re.search(said, str(raised))


def test_two_files_are_compared_and_a_file_that_lags_is_found(shop: Write) -> None:
    contracts("export", "-m", "shop_events", "--file", "old.json")
    contracts("export", "-m", "shop_events")
    shop(
        SHOP.replace("order_id: str", "order_id: str\n        note: str = ''\n").replace(
            "lines: list[Line]", "lines: list[Line] = ()"
        )
    )
    lagging = contracts("check", "-m", "shop_events", "--current")
    assert lagging.exit_code == 1
    assert "contracts.json is not what the code says" in lagging.output
    contracts("export", "-m", "shop_events")
    assert contracts("check", "--base", "old.json", "--file", "contracts.json").exit_code == 0
    assert contracts("check", "--base", "contracts.json", "--file", "old.json").exit_code == 1


TWICE = SHOP.replace('"Drafted", topic="drafts"', '"OrderPlaced", topic="orders", version=2')
VALID: dict[str, Any] = {"topic": "t", "type": "T", "version": None, "schema": {}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check"], "nothing to compare: give --module"),
        (["check", "--base", "a", "--against", "b"], "give one of --against, --base and"),
        (["check", "--base", "a", "--current"], "--current compares the file with code"),
        (["check", "-m", "shop_events"], "contracts.json: No such file or directory; write it"),
        (["export"], "no module is named; give --module shop.events"),
        (["export", "-m", "not_there"], "module 'not_there' cannot be imported: ModuleNotFound"),
        (["export", "-m", "json"], "no class with @event(…) in json"),
        (["export", "-m", "shop_events", "--file", "a/b.json"], "a/b.json cannot be written: No"),
        (
            ["export", "-m", "shop_events", "--registry", "http://u:p@localhost"],
            "--registry takes http://host:port without credentials",
        ),
    ],
)
@pytest.mark.usefixtures("shop")
def test_misuse_is_answered_with_what_to_do(words: list[str], said: str) -> None:
    raised = contracts(*words).exception
    assert isinstance(raised, BadSettings)
    assert said in str(raised)


def test_two_classes_of_one_name_are_refused(shop: Write) -> None:
    shop(TWICE)
    for words in (["export"], ["asyncapi"]):
        raised = contracts(*words, "-m", "shop_events").exception
        assert isinstance(raised, BadSettings)
        assert "are both orders/OrderPlaced v2: give each a `version`" in str(raised)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("[", "is no JSON"),
        ("[]", "is no file of contracts"),
        ({"dovecote": 9, "contracts": []}, "has the form 9, and this version knows 1"),
        ({"dovecote": 1, "contracts": [3]}, "contract 1 is no object"),
        ({"dovecote": 1, "contracts": [{**VALID, "type": ""}]}, "contract 1 has no type"),
        ({"dovecote": 1, "contracts": [{**VALID, "key": 3}]}, "contract 1: key is no text"),
        ({"dovecote": 1, "contracts": [{**VALID, "version": "2"}]}, "version '2' is no number"),
        ({"dovecote": 1, "contracts": [{**VALID, "schema": 3}]}, "contract 1 has no schema"),
        *(
            ({"dovecote": 1, "contracts": [{**VALID, "schema": schema}]}, f"schema{said} is not")
            for schema, said in (
                ({"properties": {"a": {"items": [{}]}}}, ".properties.a.items"),
                ({"$defs": {"a": {"properties": [1]}}}, ".$defs.a.properties"),
                ({"anyOf": [{"required": True}]}, ".anyOf[0].required"),
                ({"type": [{}]}, ".type"),
                ({"enum": 3}, ".enum"),
                ({"additionalProperties": None}, ".additionalProperties"),
            )
        ),
        ({"dovecote": 1, "contracts": [VALID, VALID]}, "has t/T twice"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_a_file_that_is_none_is_refused(given: Any, said: str) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    Path("contracts.json").write_text(text)
    raised = contracts("check", "-m", "shop_events").exception
    assert isinstance(raised, BadSettings)
    assert said in str(raised)


def test_a_registry_takes_the_schemas_and_is_the_other_side(
    shop: Write, registry: Registry
) -> None:
    words = ["-m", "shop_events", "--registry", registry.url]
    empty = contracts("check", *words)
    assert (empty.exit_code, empty.output.count("its topic is new")) == (0, 2)
    exported = contracts("export", *words)
    assert "registered orders-OrderPlaced-v2 as 1000" in exported.output
    assert [path for path, _ in registry.registered] == [
        "/subjects/drafts-Drafted/versions",
        "/subjects/orders-OrderPlaced-v2/versions",
    ]
    assert {asked["schemaType"] for _, asked in registry.registered} == {"JSON"}
    # The client logs, and another test may have closed where the log goes.
    assert contracts("check", *words).stdout == "no change\n"
    shop(SHOP.replace('key="order_id"', 'key="lines"'))
    found = contracts("check", *words)
    assert found.exit_code == 1
    assert "orders/OrderPlaced v2  event: its key was order_id, and is lines" in found.output


@pytest.mark.usefixtures("shop")
def test_a_registry_with_schemas_of_others_or_away_is_said(registry: Registry) -> None:
    words = ["check", "-m", "shop_events", "--registry", registry.url]
    other = "/subjects/drafts-Drafted/versions"
    registry.registered.append((other, {"schema": json.dumps({"type": "object"})}))
    assert "drafts/Drafted  value.id: it is added, and required" in contracts(*words).output
    draft_4 = {"type": "object", "properties": {"id": {"required": True}}}
    registry.registered.append((other, {"schema": json.dumps(draft_4)}))
    raised = contracts(*words).exception
    assert isinstance(raised, RegistryRefused)
    assert "schema.properties.id.required is not of the form of JSON Schema" in str(raised)
    registry.registered.append((other, {"schema": '"string"'}))
    raised = contracts(*words).exception
    assert isinstance(raised, RegistryRefused)
    assert "subject drafts-Drafted of the registry has no JSON Schema" in str(raised)
    away = contracts("check", "-m", "shop_events", "--registry", "http://127.0.0.1:9")
    assert isinstance(away.exception, RegistryRefused)
    assert "the schema registry did not read drafts-Drafted" in str(away.exception)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, '{"error_code": 40101, "message": "Unauthorized"}'),
        (404, "<html>no such page</html>"),
        (404, '{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (409, '{"error_code": 409, "message": "incompatible"}'),
        (200, "<html>sign in</html>"),
        (200, "[]"),
        (200, "{}"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_an_answer_that_is_no_registrys_is_no_addition(status: int, said: str) -> None:
    with answering(status, said) as url:
        for command in ("check", "export"):
            found = contracts(command, "-m", "shop_events", "--registry", url)
            assert isinstance(found.exception, RegistryRefused), (command, found.output)


def test_the_document_is_the_same_in_json_and_yaml_and_the_page_has_all_fields(
    shop: Write,
) -> None:
    contracts("export", "-m", "shop_events")
    shop("")
    as_json = json.loads(contracts("asyncapi", "--title", "Shop", "--release", "2.1.0").output)
    assert as_json["info"] == {"title": "Shop", "version": "2.1.0"}
    again = ["asyncapi", "--title", "Shop", "--release", "2.1.0", "--form", "yaml"]
    assert contracts(*again, "--output", "a.yaml").output == ""
    assert yaml.safe_load(Path("a.yaml").read_text()) == as_json
    shown = contracts("asyncapi", "--form", "markdown").output
    assert "## Topic `orders`\n\n### OrderPlaced, version 2\n\n* Key: `order_id`" in shown
    assert "| `lines` | list of Line | yes |  |" in shown
    assert "| `price` | string (decimal) | yes |  |" in shown
