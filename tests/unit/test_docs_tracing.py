"""The page on tracing says what the code does."""

import re
from collections.abc import Iterator

from outbox.tracing import conventions
from tests.support.documents import ROOT, code_spans, table

PAGE = ROOT / "docs/tracing.md"
PACKAGES = ("dedup", "dovecote", "outbox", "relay", "spark_jobs")
_STARTED = re.compile(r'\.start\(\s*"(\w+)",\s*"(\w+)",(?:\s*#.*\n)?\s*SpanKind\.(\w+)')

_DIFFERS = re.compile(r"…|=x|'x'|\bX\b|OTEL_TRACES_EXPORTER|OTEL_EXPORTER_OTLP_PROTOCOL")
"""The parts of a message that differ, or have a name in the code."""


def constants() -> Iterator[str]:
    for name, value in vars(conventions).items():
        if name.isupper() and not name.startswith("_") and isinstance(value, str):
            yield value


def test_all_attributes_are_in_the_table() -> None:
    rows = table(PAGE, "Attributes")
    told = {code_spans(row[0])[0] for row in rows}
    assert told == {each for each in constants() if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", each)}


def test_all_spans_are_in_the_table() -> None:
    made = set()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            made |= {(name, kind) for name, _, kind in _STARTED.findall(file.read_text())}
    # A producer's span is of another kind if the event has a context of its own.
    made = {(name, kind.lower()) for name, kind in made}
    rows = table(PAGE, "Spans")
    told = {(code_spans(row[0])[0].split()[0], row[2]) for row in rows}
    assert told - {("POST", "client")} == made


def test_operations_and_types_are_named() -> None:
    found = {
        kind
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for _, kind, _ in _STARTED.findall(file.read_text())
    }
    rows = {code_spans(row[0])[0]: code_spans(row[1]) for row in table(PAGE, "Attributes")}
    assert set(rows["messaging.operation.type"]) == found


def test_older_names_are_those_that_are_added() -> None:
    rows = [[code_spans(cell)[0] for cell in row] for row in table(PAGE, "Conventions")]
    for category in ("messaging", "http"):
        asked = f"{category}/dup"
        found = conventions.older({conventions.OPT_IN: f"x, {asked}"})
        assert {new: old for said, new, old in rows if said == asked} == found
        assert conventions.older({conventions.OPT_IN: category}) == {}
    assert conventions.VERSION in PAGE.read_text()


def test_the_variables_are_those_that_are_read() -> None:
    rows = table(PAGE, "Set a process up", number=2)
    told = {code_spans(row[0])[0] for row in rows}
    read = {each for each in constants() if each.isupper()}
    assert told == read


def test_the_messages_are_those_of_the_code() -> None:
    code = "".join(
        (ROOT / name).read_text()
        for name in ("dovecote/process/telemetry.py", "outbox/tracing/spans.py")
    )
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    for row in table(PAGE, "Set a process up", number=3):
        message = code_spans(row[0])[0]
        parts = _DIFFERS.split(message)
        for part in (each.strip(" :,") for each in parts):
            assert part.replace("http/protobuf or grpc", "").strip() in code, part
