"""The console's page in a real browser: what it shows of the flow and of trouble."""

import pytest

from tests.support import console_flows as flows
from tests.support.browser import Browser
from tests.support.console_fake import PAGE, Fake
from tests.support.fix_console import VIEWS, fake, misses, opened, sees, window
from tests.support.waiting import until

__all__ = ["fake", "window"]

STATE_OF = (
    "return document.querySelector('[data-id=\"' + arguments[0] + '\"] .chip').dataset.state"
)
GREEN = "return document.querySelectorAll('.chip.good').length"


def test_troubles_are_on_the_first_screen_and_gone_when_mended(
    fake: Fake, window: Browser
) -> None:
    window.open("about:blank")
    window.open(fake.url)
    sees(window, "No troubles", "h1")
    fake.flow = flows.ill()
    sees(window, "4 troubles", "h1", within=5)
    for text in ("401", "no member of the group", "'invoices' does not exist", "parked"):
        assert text in window.text(".troubles")
    assert "for 95 s" in window.text(".trouble")
    low = "return Math.max(...[...document.querySelectorAll('.trouble')]"
    assert window.run(f"{low}.map(e => e.getBoundingClientRect().bottom)) <= innerHeight")
    assert window.run(STATE_OF, "push/main/billing") == "failing"
    assert window.text(".troubles .todo code") == "dovecote push update billing"
    fake.flow = flows.well()
    sees(window, "No troubles", "h1", within=5)
    assert window.run(STATE_OF, "push/main/billing") == "working"


def test_every_node_is_drawn_with_its_state_in_words_and_a_shape(
    fake: Fake, window: Browser
) -> None:
    fake.flow = flows.ill()
    opened(window, fake, "flow")
    for each in fake.flow["nodes"]:
        assert window.run(STATE_OF, each["id"]) == each["state"]
    shapes = "return [...document.querySelectorAll('.chip')].map(e =>"
    shapes += " [e.dataset.state, e.querySelector('path').getAttribute('d')])"
    by_state = dict(window.run(shapes))
    assert len(set(by_state.values())) == len(by_state)
    count = "return document.querySelectorAll('.lines path').length"
    assert window.run(count) == len(fake.flow["edges"])
    label = "return document.querySelector('.lines').getAttribute('aria-label')"
    assert "topic/orders feeds consumer/shipping at 360/s" in window.run(label)


@pytest.mark.parametrize("view", VIEWS)
def test_a_deep_link_opens_its_view(view: str, fake: Fake, window: Browser) -> None:
    opened(window, fake, view)
    current = "return document.querySelector('nav a[aria-current]')?.dataset.view ?? 'part'"
    assert window.run(current) == view


def test_back_and_forward_go_through_views_and_titles_follow(fake: Fake, window: Browser) -> None:
    fake.flow = flows.ill()
    opened(window, fake, "flow")
    sees(window, "401", ".troubles")
    window.click(".trouble a.what")
    sees(window, "Partitions")
    assert window.run("return location.hash") == "#/part/push/main/billing"
    assert window.run("return document.title") == "push/main/billing · Dovecote console"
    assert window.run("return document.activeElement.tagName") == "H1"
    window.back()
    sees(window, "All parts")
    window.forward()
    sees(window, "Partitions")


def test_a_part_shows_processes_findings_and_its_history(fake: Fake, window: Browser) -> None:
    opened(window, fake, "part")
    for text in ("shipping-1.internal", "keeps its letters for 7 days", "190,412", "Its dead"):
        assert text in window.text("main")
    label = "return document.querySelector('svg.chart').getAttribute('aria-label')"
    sees(window, "Rate", "figure")
    assert "Rate over the last 60 min: now" in window.run(label)
    select = "const e = document.getElementById('range'); e.value = '15';"
    window.run(f"{select} e.dispatchEvent(new Event('change'))")
    until(lambda: "15 min" in window.run(label), within=10, what="a shorter history")
    assert any("minutes=15" in path for path in fake.asked)


def test_nothing_old_is_green_while_the_server_is_away(fake: Fake, window: Browser) -> None:
    opened(window, fake, "flow")
    assert window.run(GREEN) > 0
    fake.away = True
    sees(window, "may not hold any more", "#stale")
    assert "does not answer" in window.text("#stale")
    assert window.run(GREEN) == 0
    assert window.run(STATE_OF, "consumer/ledger") == "was working"
    assert window.run("return document.querySelectorAll('path.moves').length") == 0
    fake.away = False
    misses(window, "may not hold any more", "#stale")
    until(lambda: window.run(GREEN) > 0, within=10, what="green again")


def test_a_page_without_one_of_its_files_says_so_and_loads_again(
    fake: Fake, window: Browser
) -> None:
    fake.lost = ["dead.js"]
    window.open(f"{fake.url}#/dead")
    sees(window, "did not give a file of this page", "#stale")
    assert window.text("#seen") == "not connected"
    sees(window, "as of", "#seen")
    assert "Given up" in window.text()
    assert window.text("#stale") == ""


def test_a_server_that_fails_is_as_good_as_away_and_its_error_is_shown(
    fake: Fake, window: Browser
) -> None:
    opened(window, fake, "flow")
    fake.refuses["/api/flow"] = (500, {"error": "its loop ended", "todo": "Start it again."})
    sees(window, "its loop ended Start it again.", "#stale")
    assert window.run(GREEN) == 0


def test_a_source_that_cannot_be_asked_is_a_trouble_and_its_parts_are_not_green(
    fake: Fake, window: Browser
) -> None:
    error = "the database refuses connections"
    source = {"part": "outbox/shop", "ok": False, "error": error, "at": flows.at(30)}
    fake.flow["sources"] = [source]
    opened(window, fake, "flow")
    sees(window, error, ".troubles")
    assert window.run(STATE_OF, "outbox/shop") == "was working"
    assert window.run(STATE_OF, "relay/shop/0") == "was working"
    assert window.run(STATE_OF, "consumer/ledger") == "working"


def test_without_a_part_the_page_says_what_to_write(fake: Fake, window: Browser) -> None:
    fake.flow = flows.flow([])
    window.open("about:blank")
    window.open(fake.url)
    sees(window, "[sources.outbox.shop]")
    assert "The settings file names no part" in window.text("main")


@pytest.mark.parametrize("link", ["#/", "#/dead", "#/part/consumer/x", "#/find?id=1"])
def test_markup_in_names_and_payloads_stays_text(link: str, fake: Fake, window: Browser) -> None:
    fake.flow = flows.hostile()
    fake.letters = flows.letters(3, flows.HOSTILE)
    for each in fake.letters:
        each.update(value=flows.HOSTILE, headers={flows.HOSTILE: flows.HOSTILE}, id=flows.HOSTILE)
    window.open("about:blank")
    window.open(fake.url + link)
    sees(window, "as of", "#seen")
    if link == "#/":
        sees(window, flows.HOSTILE, ".troubles")
        href = window.run("return document.querySelector('.trouble a.what').getAttribute('href')")
        assert href.startswith("#/part/consumer/")
        window.run("document.querySelector('.trouble a.what').click()")
        sees(window, flows.HOSTILE, "h1")
    if link == "#/dead":
        sees(window, flows.HOSTILE, "main")
        window.click("button.link")
        sees(window, flows.HOSTILE, "pre")
    assert window.run("return document.querySelectorAll('main img, main b').length") == 0
    assert "taken" not in window.run("return document.title").split("·")[-1]
    assert window.run("return document.title") != "taken"


def test_the_policy_refuses_script_and_style_within_the_page(fake: Fake, window: Browser) -> None:
    opened(window, fake, "flow")
    window.run("document.querySelector('#seen').innerHTML = arguments[0]", flows.HOSTILE)
    window.run(
        "const s = document.createElement('script'); s.textContent = 'document.title = 1';"
        "document.body.append(s)"
    )
    assert window.run("return document.title") == "Dovecote console"
    text = "".join(file.read_text() for file in PAGE.iterdir())
    for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="):
        assert word not in text


def test_a_token_is_asked_for_and_kept_in_this_tab_only(fake: Fake, window: Browser) -> None:
    fake.token = "letmein"  # noqa: S105  # of the fake
    window.open("about:blank")
    window.open(fake.url)
    sees(window, "This console wants a token", "#token-dialog")
    window.type("#token", "wrong")
    window.press("Enter")
    sees(window, "does not know the token", "#token-dialog")
    window.type("#token", "letmein")
    window.press("Enter")
    sees(window, "All parts")
    assert window.run("return localStorage.length") == 0
    assert window.run("return document.cookie") == ""
    assert "ada" in window.text("#who")
    window.run("sessionStorage.clear()")


def test_a_link_to_no_view_says_so(fake: Fake, window: Browser) -> None:
    window.open("about:blank")
    window.open(fake.url + "#/nowhere/%E0%A4%A")
    sees(window, "There is no such view")
