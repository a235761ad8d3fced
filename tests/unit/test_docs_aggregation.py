"""The examples in the documents on aggregation are true."""

import json
from pathlib import Path

import pytest
import yaml

from spark_jobs.operators.aggregation.config import Step
from tests.support.documents import ROOT, Block, blocks, code_spans, commands, printed_by, table
from tests.unit.spark_jobs.operators.aggregation.steps import (
    event,
    loaded,
    place,
    running,
    step,
    values,
)

PAGE, COOKBOOK = ROOT / "docs/aggregation.md", ROOT / "docs/aggregation-cookbook.md"
TESTS = sorted((ROOT / "tests/unit/spark_jobs/operators/aggregation").glob("test_step*.py"))
_BLOCKS = {block.name: block for block in blocks(COOKBOOK)}
RECIPES = [name.removesuffix(".in") for name in _BLOCKS if name.endswith(".in")]


def test_the_examples_print_what_they_show(tmp_path: Path) -> None:
    for block in blocks(PAGE):
        if block.name:
            (tmp_path / block.name).write_text(block.text)
    ran = 0
    for line, output in commands(PAGE):
        assert (line, printed_by(line, tmp_path)) == (line, output)
        ran += 1
    assert ran == 3


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_makes_what_it_shows(tmp_path: Path, name: str) -> None:
    scripts = {
        block.name.removesuffix(".star"): block.text
        for block in _BLOCKS.values()
        if block.language == "python"
    }
    config = step(**yaml.safe_load(_BLOCKS[f"{name}.yaml"].text))
    given = running(tmp_path, config, **scripts)
    said = []
    for number, value in enumerate(_lines(_BLOCKS[f"{name}.in"])):
        time = 1_000_000 + 1_000 * number
        said += given.at(time, event(value, time=time))
    said += given.end(2_000_000)
    assert values(said) == _lines(_BLOCKS[f"{name}.out"])


def test_there_are_eleven_recipes() -> None:
    assert len(RECIPES) == 11


def test_the_table_names_a_test_for_all_that_the_manual_has() -> None:
    rows = table(PAGE, "From the manual to here")
    wanted = [f"A{n}" for n in range(1, 14)] + [f"K{n}" for n in range(1, 6)]
    wanted += ["W1", "W2", "W3"] + [f"T{n}" for n in range(1, 8)] + [f"F{n}" for n in range(1, 5)]
    assert list(dict.fromkeys(row[0] for row in rows)) == wanted
    text = "".join(module.read_text() for module in TESTS)
    for number, _, _, test in rows:
        (name,) = code_spans(test)
        assert f"def {name}(" in text
        assert name.startswith(f"test_{number.lower()}_")


def test_every_field_of_a_step_is_explained_somewhere_on_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text()
    names = [field.alias or name for name, field in Step.model_fields.items()]
    assert len(names) > 10
    for name in names:
        assert name in text, name
    assert loaded(tmp_path, step(late=place("late"))).step.late is not None


def _lines(block: Block) -> list[object]:
    return [json.loads(line) for line in block.text.splitlines()]
