"""The console's page for everybody: axe, dark, a phone, the keyboard, a screen reader."""

import os
from pathlib import Path

import pytest

from tests.support import console_flows as flows
from tests.support.browser import Browser
from tests.support.console_fake import Fake
from tests.support.fix_console import VIEWS, fake, opened, sees, violations, window
from tests.support.waiting import until

__all__ = ["fake", "window"]

PHONE = (360, 740)
DESK = (1280, 900)


@pytest.fixture(autouse=True)
def as_before(window: Browser) -> None:
    window.resize(*DESK)
    window.prefer()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_against_a_view(
    view: str, scheme: str, fake: Fake, window: Browser
) -> None:
    window.prefer(scheme=scheme)
    fake.flow = flows.ill()
    opened(window, fake, view)
    sees(window, "as of", "#seen")
    assert violations(window) == []
    fake.away = True
    sees(window, "may not hold", "#stale")
    assert violations(window) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_against_dialogs_and_payloads(
    scheme: str, fake: Fake, window: Browser
) -> None:
    window.prefer(scheme=scheme)
    opened(window, fake, "dead")
    window.click("button.link")
    sees(window, '"total"', "pre")
    window.click(".listed tbody input")
    window.run("[...document.querySelectorAll('main button.danger')][0].click()")
    sees(window, "Drop 1 letter?", "#question")
    assert violations(window) == []
    window.click("#question-yes")
    sees(window, "1 letter was dropped", ".outcome")
    assert violations(window) == []
    fake.token = "x"  # noqa: S105  # of the fake
    sees(window, "wants a token", "#token-dialog")
    assert violations(window) == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_shows_each_view_without_scrolling_sideways(
    view: str, fake: Fake, window: Browser
) -> None:
    window.resize(*PHONE)
    fake.flow = flows.hostile() | {"troubles": flows.ill()["troubles"]}
    opened(window, fake, view)
    picture(window, f"phone-{view}")
    assert window.run("return document.documentElement.scrollWidth") <= PHONE[0]
    assert violations(window) == []


def test_dark_is_dark_and_light_is_light(fake: Fake, window: Browser) -> None:
    opened(window, fake, "flow")
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert window.run(ground) == "rgb(246, 245, 241)"
    window.prefer(scheme="dark")
    assert window.run(ground) == "rgb(19, 24, 22)"


def test_whoever_wants_little_motion_gets_none(fake: Fake, window: Browser) -> None:
    opened(window, fake, "flow")
    moving = "return getComputedStyle(document.querySelector('path.moves')).animationName"
    assert window.run(moving) == "along"
    window.prefer(motion="reduce")
    assert window.run(moving) == "none"


def test_the_keyboard_reaches_everything_and_its_place_is_seen(
    fake: Fake, window: Browser
) -> None:
    fake.flow = flows.ill()
    opened(window, fake, "flow")
    sees(window, "401", ".troubles")
    window.press("Tab")
    assert window.run("return document.activeElement.id") == "skip"
    assert window.run("return document.activeElement.getBoundingClientRect().top") >= 0
    window.press("Enter")
    assert window.run("return document.activeElement.id") == "view"
    window.press("Tab")
    assert window.run("return document.activeElement.className") == "what"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert window.run(outline) == "solid"
    # The page draws anew every moment, and keeps the keyboard where it is.
    window.run("document.querySelector('[data-id=\"consumer/ledger\"]').focus()")
    asked = len(fake.asked)
    until(lambda: len(fake.asked) > asked + 3, within=10, what="three more looks")
    assert window.run("return document.activeElement.dataset.id") == "consumer/ledger"
    window.press("Enter")
    sees(window, "Partitions")
    reachable = (
        "return [...document.querySelectorAll('[onclick], [role=button]')].filter(e => "
        "!['A', 'BUTTON', 'INPUT'].includes(e.tagName)).length"
    )
    assert window.run(reachable) == 0


def test_a_screen_reader_hears_of_new_troubles_once_and_of_those_that_ended(
    fake: Fake, window: Browser
) -> None:
    opened(window, fake, "flow")
    said = (
        "window.said = []; new MutationObserver(() => window.said.push("
        "document.getElementById('news').textContent)).observe("
        "document.getElementById('news'), {childList: true, characterData: true, subtree: true})"
    )
    window.run(said)
    fake.flow = flows.well()
    fake.flow["troubles"] = flows.ill()["troubles"][:1]
    until(lambda: window.run("return window.said.length") == 1, within=20, what="it is said")
    assert "New trouble: push/main/billing" in window.run("return window.said[0]")
    # A count that changes in the title is no news.
    fake.flow["troubles"][0]["title"] = "endpoint answers 401 to all of the last 99 requests"
    fake.flow["at"] = flows.at(-60)
    asked = len(fake.asked)
    until(lambda: len(fake.asked) > asked + 8, within=20, what="eight more looks")
    fake.flow = flows.well()
    until(lambda: window.run("return window.said.length") == 2, within=20, what="its end is said")
    assert "Ended: push/main/billing" in window.run("return window.said[1]")
    marks = "return [...document.querySelectorAll('header, nav, main, h1')].map(e => e.tagName)"
    assert {"HEADER", "NAV", "MAIN", "H1"} <= set(window.run(marks))
    assert (
        window.run("return document.querySelectorAll('table:not(:has(th[scope=col]))').length")
        == 0
    )


def picture(window: Browser, name: str) -> None:
    """Leave a picture in DOVECOTE_PICTURES, for somebody to look at."""
    folder = os.environ.get("DOVECOTE_PICTURES")
    if folder is not None:
        window.screenshot(Path(folder) / f"{name}.png")
