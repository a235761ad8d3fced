"""The examples and figures of docs/retries.md hold."""

import tomllib
from collections.abc import Iterator
from datetime import timedelta
from typing import get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dedup.retries.plan import Plan
from dedup.rules.policies.results import Result
from dedup.settings.inbox import InboxSettings
from dedup.settings.retries import RetriesSettings, TierSettings
from dedup.testing import What
from tests.support.documents import ROOT, Block, blocks, code_spans, documented, table
from tests.unit.dedup import test_amplification as amplification

DOCUMENT = ROOT / "docs/retries.md"
PYTHON = blocks(DOCUMENT, "python")


def test_a_handler_is_tried_without_a_broker_as_it_is_shown() -> None:
    (example,) = (block.text for block in PYTHON if "Trial(" in block.text)

    exec(compile(example, str(DOCUMENT), "exec"), {"__name__": "example"})  # noqa: S102  # the document's own


def test_tenacitys_objects_make_a_plan_as_it_is_shown() -> None:
    (example,) = (block.text for block in PYTHON if "tenacity" in block.text)
    names: dict[str, object] = {"__name__": "example"}

    exec(compile(example, str(DOCUMENT), "exec"), names)  # noqa: S102  # the document's own

    assert isinstance(names["plan"], Plan)


@pytest.mark.parametrize("block", blocks(DOCUMENT, "toml"))
def test_the_settings_that_are_shown_are_settings(block: Block) -> None:
    told = tomllib.loads(block.text)
    if "retries" in told:
        RetriesSettings.model_validate(told["retries"]).plan()
    else:
        environ = {"environ": {"BILLING_DSN": "dbname=billing"}}
        InboxSettings.model_validate(told["inbox"], context=environ)


def rows(model: type[BaseModel], prefix: str, told: dict[str, str]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield f"| `{prefix}{info.alias or name}` | {default(info)} | {told[name]} |"


def default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    match info.default:
        case timedelta() as time:
            return f'`"{time.total_seconds():g}s"`'
        case None | ():
            return "none"
        case str(text):
            return f'`"{text}"`'
        case other:
            return f"`{other}`"


def test_the_table_of_settings_is_that_of_the_classes() -> None:
    told = documented(ROOT / "dedup/settings/retries.py")
    own = {**told["RetrySettings"], **told["RetriesSettings"]}
    inbox = documented(ROOT / "dedup/settings/inbox.py")["InboxSettings"]
    shown = ["| " + " | ".join(line) + " |" for line in table(DOCUMENT, "Settings")]

    assert shown == [
        *rows(RetriesSettings, "retries.", own),
        *rows(TierSettings, "retries.tiers.", told["TierSettings"]),
        *rows(InboxSettings, "inbox.", inbox),
    ]


def test_every_result_is_explained() -> None:
    shown = " ".join(row[0] for row in table(DOCUMENT, "Results of a handler"))

    assert {span.partition("(")[0] for span in code_spans(shown)} == {
        kind.__name__ for kind in get_args(Result)
    }


def test_every_outcome_of_a_trial_is_named() -> None:
    text = DOCUMENT.read_text().partition("Each `Outcome` says")[2].partition(". The policy")[0]

    assert set(code_spans(text)) == {*get_args(What)} - {"parked"}


def test_the_factor_that_is_told_is_that_of_the_loop_without_ids() -> None:
    assert "six times as many" in DOCUMENT.read_text()
    assert round((1 + amplification.AMBIGUOUS) ** amplification.ROUNDS) == 6
