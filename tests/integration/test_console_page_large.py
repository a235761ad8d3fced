"""The console's page with 2,000 subscriptions and 500 topics: its time, and what it keeps."""

from tests.support import console_flows as flows
from tests.support.browser import Browser
from tests.support.console_fake import PAGE, Fake
from tests.support.fix_console import fake, opened, sees, settled, window
from tests.support.waiting import patient, until

__all__ = ["fake", "window"]

MEASURED = "return performance.getEntriesByName('flow').map(each => each.duration)"
ELEMENTS = "return document.querySelectorAll('*').length"


def test_two_thousand_subscriptions_and_five_hundred_topics_render_in_a_second(
    fake: Fake, window: Browser
) -> None:
    fake.flow = flows.large(2000, 500)
    opened(window, fake, "flow")
    sees(window, "2,502 parts")
    until(lambda: len(window.run(MEASURED)) > 4, within=20, what="five looks")
    measured = window.run(MEASURED)
    assert measured[0] < patient(350)
    assert sorted(measured)[len(measured) // 2] < patient(85)
    assert window.run(ELEMENTS) < 2500


def test_a_look_changes_what_changed_and_builds_nothing_anew(fake: Fake, window: Browser) -> None:
    fake.flow = flows.large(2000, 500)
    opened(window, fake, "flow")
    sees(window, "2,502 parts")
    settled(window)  # the lines are traced again once the page was laid out
    window.run(
        "window.changed = 0; window.added = 0; new MutationObserver(all => {"
        " for (const each of all) {"
        " window.changed++; for (const node of each.addedNodes) if (node.nodeType === 1)"
        " window.added++; } }).observe(document.getElementById('view'), {subtree: true,"
        " childList: true, characterData: true, attributes: true})"
    )
    next(each for each in fake.flow["nodes"] if each["id"] == "topic/events.0001")["rate"] = 77.0
    sees(window, "77/s", "[data-id='topic/events.0001']")
    assert window.run("return window.added") == 0
    assert window.run("return window.changed") < 10


def test_the_rest_is_folded_and_a_filter_finds_one(fake: Fake, window: Browser) -> None:
    fake.flow = flows.large(2000, 500)
    opened(window, fake, "flow")
    sees(window, "1,996 more")
    assert "492 more topics" in window.text(".picture")
    assert "21 troubles" in window.text("h1")
    assert "Show all 21" in window.text(".top")
    window.type("input[name=q]", "customer-01234")
    sees(window, "1 of 2,502 parts")
    assert "customer-01234" in window.text(".picture")
    assert "events.0234" in window.text(".picture")
    assert "q=customer-01234" in window.run("return location.hash")


def test_rows_of_all_parts_come_by_pages(fake: Fake, window: Browser) -> None:
    fake.flow = flows.large(2000, 500)
    opened(window, fake, "flow")
    sees(window, "1 to 50 of 2,502", ".pager")
    window.click(".pager button:last-child")
    sees(window, "51 to 100 of 2,502", ".pager")
    assert window.run("return document.querySelectorAll('tbody tr').length") == 50


def test_the_page_is_small() -> None:
    size = sum(file.stat().st_size for file in PAGE.iterdir())
    assert size < 100_000
