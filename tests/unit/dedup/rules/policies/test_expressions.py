import sys
from pathlib import Path

import pytest

from dedup.rules.policies.expressions import compile_filter, load_handler
from dedup.rules.policies.results import Again, Done
from outbox.errors import BadSettings
from outbox.event import Event

MODULE = """
from datetime import timedelta
from dedup import Again

calls = []
limit = 5

def is_large(event):
    return event.value["amount"]      # a number, not a bool

def again(event):
    return Again(timedelta(seconds=1))

def nothing(event):
    calls.append(event)

async def later(event):
    pass

class Shop:
    @staticmethod
    def settle(event):
        return None
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module `shop_rules`, and two that cannot be imported."""
    (tmp_path / "shop_rules.py").write_text(MODULE)
    (tmp_path / "shop_needs.py").write_text("import no_such_library")
    (tmp_path / "shop_broken.py").write_text("limit = 1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("shop_rules", "shop_needs", "shop_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def event(amount: int) -> Event:
    return Event(topic="orders", type="OrderPlaced", key="k", value={"amount": amount})


def test_a_filter_may_be_a_function_and_passes_by_truth() -> None:
    passes = compile_filter("shop_rules:is_large")
    assert passes(event(1)) is True
    assert passes(event(0)) is False


def test_a_filter_may_be_an_expression() -> None:
    passes = compile_filter("value.amount > 3")
    assert passes(event(4)) is True
    assert passes(event(3)) is False


def test_what_a_filter_function_raises_is_left_to_the_policy() -> None:
    nothing: Event[object] = Event(topic="orders", type="OrderPlaced", value={})
    with pytest.raises(KeyError):
        compile_filter("shop_rules:is_large")(nothing)


def test_a_handler_returns_its_result_and_none_means_done() -> None:
    assert isinstance(load_handler("shop_rules:again")(event(1)), Again)
    assert load_handler("shop_rules:nothing")(event(1)) == Done()
    assert load_handler("shop_rules:Shop.settle")(event(1)) == Done()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nowhere:f", "looked for the module nowhere"),
        ("shop_rules.inner:f", "looked for the module shop_rules.inner"),
        ("shop_rules:f", r"looked for f in .*shop_rules.py, which has no f"),
        ("shop_rules:Shop.f", r"looked for Shop.f in .*shop_rules.py, which has no f"),
        ("shop_rules:limit", "is a int"),
        ("shop_rules:later", "an async function"),
        ("shop_needs:f", "imports no_such_library, which is not installed"),
        ("shop_broken:f", "raised ZeroDivisionError"),
    ],
)
def test_a_function_that_cannot_be_had_says_what_was_looked_for(text: str, says: str) -> None:
    with pytest.raises(BadSettings, match=rf"handler '{text}'.*{says}"):
        load_handler(text)
    with pytest.raises(BadSettings, match=rf"filter '{text}'.*{says}"):
        compile_filter(text)


def test_a_module_that_is_not_found_is_reported_with_the_folder_that_was_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    without = [each for each in sys.path if each]
    monkeypatch.setattr(sys, "path", without)
    with pytest.raises(BadSettings, match=f"the current folder, {here}, is not on"):
        load_handler("nowhere:f")
    monkeypatch.setattr(sys, "path", [*without, ""])
    with pytest.raises(BadSettings, match=f"the current folder, {here}, was searched too"):
        load_handler("nowhere:f")


@pytest.mark.parametrize("text", ["", "shop_rules", "value.amount > 0", "shop rules:f", ":f"])
def test_a_handler_is_named_by_module_and_function(text: str) -> None:
    with pytest.raises(BadSettings, match='not of the form "module:function"'):
        load_handler(text)
