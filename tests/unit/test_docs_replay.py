"""The examples in the documents on replay and on the policies are true."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dedup.rules.policies.expressions import compile_filter
from dedup.rules.policies.policies import POLICIES, Failed, Handled, Skipped, Verdict
from dedup.rules.policies.results import Done, Result
from outbox.event import Event
from tests.support.waiting import patient

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[tuple[str, str, str]]:
    """Return language, file name and text of each fenced block."""
    text = (DOCS / document).read_text()
    return [(match[1], match[2] or "", match[3]) for match in FENCE.finditer(text)]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize(("document", "at_least"), [("replay.md", 8), ("operators.md", 4)])
def test_every_example_of_the_documents_prints_what_it_shows(
    tmp_path: Path, document: str, at_least: int
) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    ran = 0
    for language, name, text in blocks(document):
        if name:
            (tmp_path / name).write_text(text)
        if language != "console":
            continue
        for command, shown in commands(text):
            done = subprocess.run(
                [bash, "-c", command],
                cwd=tmp_path,
                env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=patient(60),
            )
            assert (command, done.stdout) == (command, shown)
            ran += 1
    assert ran >= at_least


def table(document: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table under `heading`, without its head."""
    section = (DOCS / document).read_text().partition(f"## {heading}\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


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
    rows = table("dedup-policies.md", "One batch, three policies")
    passes = compile_filter("value.amount > 0")
    batch = [
        (Event(topic="t", type="T", id=id_, value={"amount": int(amount)}), int(round_))
        for _, id_, round_, amount, *_ in rows
    ]
    verdicts = POLICIES[name](
        batch,
        matches=lambda record: passes(record[0]),
        handle=lambda record: handle(record[0]),
        identity=lambda record: (record[0].id, record[1]),
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
    rows = table("dedup-policies.md", "Filters")
    assert len(rows) == 7
    for row in rows:
        assert compile_filter(row[0].strip("`"))(event) is True


def test_the_python_of_the_documents_is_python_that_runs() -> None:
    for document in ("replay.md", "dedup-policies.md"):
        for language, _, text in blocks(document):
            if language == "python":
                names: dict[str, object] = {}
                exec(compile(text, document, "exec"), names)  # noqa: S102  # our own document
                assert callable(names["settle"])
