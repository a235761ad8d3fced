"""The names, defaults and messages in the documents are those of the code."""

import ast
import os
import re
import tomllib
from dataclasses import MISSING, fields
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dovecote.cli.main import app
from dovecote.process.settings.loading import load
from dovecote.process.settings.models import HttpSettings
from outbox.envelope import encode
from outbox.event import Event, Limits
from outbox.producer.direct import FIXED as PRODUCERS_OWN
from outbox.producer.options import Options
from relay.errors import ADVICE
from relay.health import KINDS
from relay.kafka.properties import FIXED, producer_properties
from relay.metrics import Metrics
from relay.settings import PREFIX, RelaySettings, WalSettings
from tests.support.documents import (
    DOCUMENTS,
    ROOT,
    anchors,
    blocks,
    code_spans,
    commands,
    counted,
    documented,
    links,
    table,
)

EVENTS, RELAY = ROOT / "docs/events.md", ROOT / "docs/relay.md"
PRODUCER, STARTED = ROOT / "docs/producer.md", ROOT / "docs/getting-started.md"

# librdkafka's own defaults, which the relay repeats for readers of its code.
SAID_AGAIN = {"batch.size", "queue.buffering.max.kbytes"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for link in links(document):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_shown_is_there_with_its_options(document: Path) -> None:
    targets = make_targets()
    for line in shown_commands(document):
        for made in re.findall(r"\bmake ([a-z][\w-]*)", line):
            assert made in targets, line
        for _, words in re.findall(r"(^|[$(;|=] ?|\s)dovecote ([^|;#)]*)", line):
            require_command(words.split())


def shown_commands(document: Path) -> list[str]:
    spans = code_spans(
        re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    )
    return [
        *(command.line for command in commands(document)),
        *(span for span in spans if span.startswith(("dovecote ", "make "))),
    ]


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    benches = [path.stem for path in (ROOT / "benchmarks").glob("*.py")]
    return {
        *re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE),
        *(f"bench-{name}" for name in benches),
        "bench-NAME",
    }


def require_command(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        if (found := command.get_command(None, words[0])) is None:
            break
        command, words = found, words[1:]
    assert not (hasattr(command, "commands") and words and words[0].isalpha()), words
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    for word in words:
        if re.match(r"--?[a-z]", word):
            assert word in known, (command.name, word)


def test_the_table_of_extras_is_that_of_the_package() -> None:
    shown = [name for row in table(STARTED, "1. Install") for name in code_spans(row[0])]
    assert sorted(shown) == sorted(extras())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_pip_is_told_to_install_is_the_clone_with_extras_that_are_there(
    document: Path,
) -> None:
    # An error names the extra alone; nobody else's package may come from an index.
    text = re.sub(r"dovecote: dovecote \w+ needs .*", "", document.read_text())
    for found in re.findall(r"pip install '?(\S*(?:dovecote|clone)[^\s'`]*)", text):
        place, _, named = found.rstrip("`,]").partition("[")
        assert place == "/path/to/clone", found
        assert set(named.split(",")) - {""} <= extras(), found


def test_the_modules_that_contributors_are_sent_to_are_there() -> None:
    named = [
        span
        for row in table(ROOT / "CONTRIBUTING.md", "Where to look")
        for span in code_spans(row[1])
    ]
    places = [span for span in named if "/" in span]
    assert len(places) > 10
    assert [place for place in places if not (ROOT / place).exists()] == []


def extras() -> set[str]:
    """Return the names of the package's extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"])


def test_the_table_of_event_fields_is_that_of_the_class() -> None:
    rows = {row[0].strip("`"): row[1] for row in table(EVENTS, "Fields")}
    assert list(rows) == ordered([field.name for field in fields(Event)], list(rows))
    for field in fields(Event):
        shown = rows[field.name]
        if field.default is not MISSING:
            expected = {None: "`None`"}.get(field.default, f'`"{field.default}"`')
            expected = "`()`" if field.default == () else expected
            assert shown == ("from the value" if field.name == "content_type" else expected)
        elif field.default_factory is MISSING:
            assert shown == "required"


def test_the_table_of_headers_is_what_an_event_gets() -> None:
    event = Event(
        topic="t",
        type="T",
        value="text",
        subject="s",
        traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
    )
    _, _, headers = encode(event)
    assert {row[0].strip("`") for row in table(EVENTS, "On Kafka")} == {h[0] for h in headers}


def test_the_table_of_limits_is_that_of_the_class() -> None:
    shown = {row[0].strip("`"): int(row[1].replace(",", "")) for row in table(EVENTS, "Limits")}
    assert shown == Limits()._asdict()


def test_the_table_of_the_producers_options_is_that_of_the_class() -> None:
    shown = {name.strip("`"): (value, text) for name, value, text in table(PRODUCER, "Options")}
    told = documented(ROOT / "outbox/producer/options.py")["Options"]
    assert {name: text for name, (_, text) in shown.items()} == told
    for name, default in vars_of(Options()).items():
        match default:
            case bool():
                assert shown[name][0] == ("yes" if default else "no")
            case timedelta():
                assert shown[name][0] == f"{default.total_seconds():g} s"
            case int():
                assert shown[name][0] == f"{default:,}"
    text = PRODUCER.read_text()
    assert all(f"`{name}`" in text for name in PRODUCERS_OWN)


def vars_of(options: Options) -> dict[str, object]:
    return {field.name: getattr(options, field.name) for field in fields(options)}


def test_the_table_of_the_relays_settings_is_that_of_the_class() -> None:
    told = documented(ROOT / "relay/settings.py")
    http = documented(ROOT / "dovecote/process/settings/models.py")
    expected = [
        *(row(field, told["RelaySettings"]) for field in settings_of(RelaySettings)),
        *(row(field, http["HttpSettings"], "http.") for field in settings_of(HttpSettings)),
        *(row(field, told["WalSettings"], "wal.") for field in settings_of(WalSettings)),
    ]
    shown = table(RELAY, "Settings")
    assert ["| " + " | ".join(line) + " |" for line in shown] == expected


def settings_of(model: type[BaseModel]) -> list[tuple[str, str, FieldInfo]]:
    return [
        (name, field.alias or name, field)
        for name, field in model.model_fields.items()
        if name not in {"http", "wal"}
    ]


def row(field: tuple[str, str, FieldInfo], told: dict[str, str], prefix: str = "") -> str:
    name, alias, info = field
    return f"| `{prefix}{alias}` | {default(prefix + name, info)} | {told[name]} |"


def default(name: str, info: FieldInfo) -> str:
    # Another field decides, or there is no value.
    by_others = {
        "name": "the schema",
        "progress_topic": '`"dovecote.progress.<name>"`',
        "topics": "all",
        "http.port": "not served",
        "http.hosts": "none",
        "shard": "any",
        "wal.stop_bytes": "never",
    }
    if name in by_others:
        return by_others[name]
    if info.is_required():
        return "required"
    match info.default:
        case timedelta() as time:
            seconds = time.total_seconds()
            return (
                f'`"{seconds:g}s"`' if seconds >= 1 or not seconds else f'`"{seconds * 1000:g}ms"`'
            )
        case str(text):
            return f'`"{text}"`'
        case other:
            return f"`{other}`"


def test_the_properties_that_cannot_be_set_are_those_that_are_refused() -> None:
    text = RELAY.read_text()
    sentence = text.partition("You cannot set the following properties")[2].partition("\n\n")[0]
    assert set(code_spans(sentence)) == FIXED


def test_the_producers_defaults_are_those_of_the_table() -> None:
    shown: dict[str, str] = {}
    for names, values, _ in table(RELAY, "TLS and SASL"):
        shown |= dict(zip(code_spans(names), code_spans(values), strict=True))
    found = {
        name: str(value)
        for name, value in producer_properties(
            {}, mode="exactly_once", transactional_id="x", transaction_timeout=60
        ).items()
        if name not in FIXED | SAID_AGAIN
    }
    assert shown == found


def test_the_table_of_metrics_is_what_a_relay_exposes() -> None:
    exposed = {counted(metric): metric.documentation for metric in Metrics("x").registry.collect()}
    shown = {row[0].strip("`"): row[1] for row in table(RELAY, "Watching it", number=2)}
    assert shown == exposed


def test_the_table_of_failures_is_what_a_relay_calls_them() -> None:
    assert [row[0].strip("`") for row in table(RELAY, "Errors")] == list(KINDS.values())


def test_the_table_of_what_is_not_published_is_the_advice_that_the_relay_gives() -> None:
    shown = {
        code: advice
        for reasons, advice in table(RELAY, "Unpublishable")
        for code in code_spans(reasons)
    }
    assert shown == ADVICE


def test_every_message_of_a_refusal_is_in_the_table() -> None:
    shown = [plain(row[0].strip("`")) for row in table(RELAY, "Refused")]
    raised = [plain(text) for path in ROOT.glob("relay/**/*.py") for text in refusals(path)]
    assert sorted(shown) == sorted(raised)


def test_every_fault_of_a_slot_is_in_the_table() -> None:
    shown = [plain(row[0].strip("`")) for row in table(RELAY, "The slot")]
    calls = [
        node
        for name in ("slot", "standbys")
        for node in ast.walk(ast.parse((ROOT / f"relay/rules/server/{name}.py").read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fault"
    ]
    raised = [plain(text(call.args[0])) for call in calls]
    assert len(raised) > 5
    assert sorted(shown) == sorted(raised)


def test_every_finding_of_the_doctor_that_is_no_refusal_is_in_the_table() -> None:
    shown = [plain(row[0].strip("`")) for row in table(RELAY, "What is wrong?")]
    told = [
        plain(text(call.args[1]))
        for module in ("relay/rules/diagnosis.py", "relay/operating/clocks.py")
        for call in ast.walk(ast.parse((ROOT / module).read_text()))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "Finding"
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value in {"warn", "fail"}
        and not isinstance(call.args[1], ast.Name | ast.Attribute)
    ]
    assert sorted(shown) == sorted(told)


def plain(text: str) -> str:
    """Return `text` without markup, and without the parts that differ between messages."""
    return re.sub(r"[`…\s]+", " ", text).strip()


REFUSALS = ("refusal", "misfit", "other_cluster")
"""The names of functions that return why a relay refuses."""


def refusals(module: Path) -> list[str]:
    """Return the messages with which `module` refuses, with … in place of values."""
    found = []
    for node in ast.walk(ast.parse(module.read_text())):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                found += [literal(before) for before, after in pairwise(body) if is_refusal(after)]
        if isinstance(node, ast.FunctionDef) and node.name.endswith(REFUSALS):
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            found += [text(value) for value in returned if isinstance(value, ast.JoinedStr)]
    return found


def is_refusal(node: ast.stmt) -> bool:
    made = getattr(node, "exc" if isinstance(node, ast.Raise) else "value", None)
    return (
        isinstance(node, ast.Raise | ast.Return)
        and isinstance(made, ast.Call)
        and isinstance(made.func, ast.Name)
        and made.func.id == "Refused"
    )


def literal(node: ast.stmt) -> str:
    assert isinstance(node, ast.Assign), ast.dump(node)
    return text(node.value)


def text(node: ast.expr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in parts)


@pytest.mark.parametrize("number", range(len(blocks(RELAY, "toml"))))
def test_every_toml_example_of_the_relay_is_taken(number: int, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host=db.internal dbname=shop\n")
    text = re.sub(r'(file = )"[^"]+"', rf'\1"{secret}"', blocks(RELAY, "toml")[number].text)
    config = tmp_path / "relay.toml"
    config.write_text(text)
    environ = dict.fromkeys(re.findall(r'env = "(\w+)"', text), "secret")
    settings = load(RelaySettings, config, prefix=PREFIX, environ=environ)
    assert settings.kafka["bootstrap.servers"]


def test_the_variables_that_are_shown_are_settings_of_the_relay() -> None:
    (block,) = blocks(RELAY, "sh")
    environ = dict(re.findall(r"^export (\w+)='?([^'\n]*)'?$", block.text, flags=re.MULTILINE))
    settings = load(RelaySettings, None, prefix=PREFIX, environ=environ)
    assert (settings.name, settings.http.port) == ("shop", 9187)
    assert settings.kafka == {"bootstrap.servers": "kafka-1.internal:9092"}


def test_every_benchmark_is_described() -> None:
    described = {
        span.removeprefix("make bench-")
        for row in table(ROOT / "docs/benchmarks.md", "Benchmarks")
        for span in code_spans(row[0])
    }
    there = {path.stem for path in ROOT.glob("benchmarks/*.py") if "__main__" in path.read_text()}
    assert described == there


def ordered(names: list[str], like: list[str]) -> list[str]:
    """Return `names` in the order of `like`, so that only missing and new ones differ."""
    return sorted(names, key=lambda name: like.index(name) if name in like else len(like))


def test_no_document_says_where_it_was_written() -> None:
    here = re.compile(rf"{re.escape(os.fspath(ROOT))}|/home/|/root/|https?://[^ )]*(jar|whl)\b")
    for document in DOCUMENTS:
        assert not here.search(document.read_text()), document
