"""Fixtures of tests of the console's page: a browser, and a server that says what a test wants."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, browser
from tests.support.console_fake import Fake, fake_console
from tests.support.waiting import until

_AXE = Path(__file__).parent / "axe" / "axe.min.js"

_AXE_SHA256 = "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb"
"""npm has this file in axe-core 4.10.3; its licence is beside it."""

VIEWS = {
    "flow": ("#/", "All parts"),
    "part": ("#/part/consumer/shipping", "Partitions"),
    "dead": ("#/dead", "Given up"),
    "find": ("#/find?id=0190b3f2-6c1e-7a55-8d0e-000000000000", "became a dead letter"),
    "log": ("#/log", "grace"),
}
"""Each view: its link, and a text that it has when it is complete."""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_console() as found:
        yield found


def sees(window: Browser, text: str, css: str = "body", within: float = 20) -> None:
    try:
        until(lambda: text in window.text(css), within=within, what=f"the page shows {text!r}")
    except AssertionError as error:
        error.add_note(f"{window.run('return location.href')} shows {window.text()!r}")
        raise


def misses(window: Browser, text: str, css: str = "body", within: float = 20) -> None:
    until(lambda: text not in window.text(css), within=within, what=f"the page hides {text!r}")


def opened(window: Browser, fake: Fake, view: str) -> None:
    link, text = VIEWS[view]
    window.open("about:blank")
    window.open(fake.url + link)
    sees(window, text)
    # The headings are there before the first answer about the flow.
    sees(window, "as of", "#seen")
    settled(window)


def settled(window: Browser) -> None:
    """Wait for two frames: what follows the first layout, such as the lines' places, is drawn."""
    window.run(
        "window.settled = false; requestAnimationFrame(() => requestAnimationFrame(() => {"
        " window.settled = true; }))"
    )
    until(lambda: window.run("return window.settled"), within=20, what="the page is drawn")


def violations(window: Browser) -> list[str]:
    """Return what axe-core says against the page as it is, with the elements concerned."""
    script = _AXE.read_bytes()
    assert hashlib.sha256(script).hexdigest() == _AXE_SHA256
    window.run(script.decode())
    window.run("window.axed = null; axe.run().then(found => { window.axed = found.violations; })")
    until(lambda: window.run("return window.axed !== null"), within=60, what="axe ends")
    found = "return window.axed.map(v => v.id + ': ' + v.nodes.map(n => n.html).slice(0, 3))"
    return list(window.run(found))
