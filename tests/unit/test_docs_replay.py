"""The examples in the documents on replay and on the policies are true."""

from pathlib import Path

import pytest

from dedup.rules.identity import Identity
from dedup.rules.policies.expressions import compile_filter
from dedup.rules.policies.policies import POLICIES, Failed, Handled, Skipped, Verdict
from dedup.rules.policies.results import Done, Result
from outbox.event import Event
from tests.support.documents import ROOT, blocks, commands_of, printed_by, table

DOCS = ROOT / "docs"


@pytest.mark.parametrize(("document", "at_least"), [("replay.md", 8), ("operators.md", 4)])
def test_every_example_of_the_documents_prints_what_it_shows(
    tmp_path: Path, document: str, at_least: int
) -> None:
    ran = 0
    for block in blocks(DOCS / document):
        if block.name:
            (tmp_path / block.name).write_text(block.text)
        if block.language != "console":
            continue
        for line, output in commands_of(block):
            assert (line, printed_by(line, tmp_path)) == (line, output)
            ran += 1
    assert ran >= at_least


def handle(event: Event) -> Result:
    if event.value == {"amount": 5}:
        raise LookupError(event.id)
    return Done()


def word(verdict: Verdict[tuple[Event, int]]) -> str:
    match verdict:
        case Handled():
            return "handled"
        case Skipped(_, reason):
            return reason
        case Failed():
            return "to retry"


@pytest.mark.parametrize(("name", "column"), [("first_match", 4), ("exact", 5), ("latest", 6)])
def test_the_table_of_the_policies_is_what_they_decide(name: str, column: int) -> None:
    rows = table(DOCS / "dedup-policies.md", "One batch, three policies")
    passes = compile_filter("value.amount > 0")
    batch = [
        (Event(topic="t", type="T", id=id_, value={"amount": int(amount)}), int(round_))
        for _, id_, round_, amount, *_ in rows
    ]
    verdicts = POLICIES[name](
        batch,
        matches=lambda record: passes(record[0]),
        handle=lambda record: handle(record[0]),
        identity=lambda record: Identity("/shop", record[0].id, record[1]),
    )
    assert [word(verdict) for verdict in verdicts] == [row[column] for row in rows]
    assert len(rows) == 9


def test_every_filter_in_the_table_of_filters_holds_for_an_event_that_has_it_all() -> None:
    value = {
        "amount": 1,
        "customer": {"address": {"city": "Ghent"}},
        "discount": 11,
        "lines": [{"n": 1}, {"n": 10}],
    }
    event = Event(topic="orders", type="OrderPlaced", key="eu-1", value=value)
    rows = table(DOCS / "dedup-policies.md", "Filters")
    assert len(rows) == 7
    for row in rows:
        assert compile_filter(row[0].strip("`"))(event) is True


def test_the_python_of_the_documents_is_python_that_runs() -> None:
    for document in ("replay.md", "dedup-policies.md"):
        for block in blocks(DOCS / document, "python"):
            names: dict[str, object] = {}
            exec(compile(block.text, document, "exec"), names)  # noqa: S102  # our own document
            assert callable(names["settle"])
