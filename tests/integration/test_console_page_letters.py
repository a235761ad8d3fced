"""Dead letters and parked events on the console's page: filters, payloads, requeue and drop."""

from typing import Any

from tests.support import console_flows as flows
from tests.support.browser import Browser
from tests.support.console_fake import Fake
from tests.support.fix_console import fake, misses, opened, sees, window
from tests.support.waiting import until

__all__ = ["fake", "window"]

ROWS = "return document.querySelectorAll('.listed tbody tr').length"
FOCUSED = "return document.activeElement.id || document.activeElement.className"


def choose(window: Browser, row: int) -> None:
    window.click(f".listed tbody tr:nth-child({row}) input")


def button(window: Browser, text: str) -> Any:
    """Press the first button that begins with the text."""
    find = "[...document.querySelectorAll('main button')].find(e => e.innerText.startsWith("
    return window.run(f"return {find}arguments[0]))?.click()", text)


def test_letters_are_requeued_after_a_question_and_the_outcome_is_shown(
    fake: Fake, window: Browser
) -> None:
    opened(window, fake, "dead")
    choose(window, 1)
    choose(window, 2)
    button(window, "Requeue 2")
    sees(window, "Requeue 2 letters?", "#question")
    assert window.run(FOCUSED) == "question-no"
    window.press("Escape")
    assert fake.posted == []
    button(window, "Requeue 2")
    window.click("#question-yes")
    sees(window, "2 letters were requeued", ".outcome")
    places = [{"part": "consumer/shipping", "place": f"orders.dead/0/{n}"} for n in (900, 899)]
    assert fake.posted == [("/api/dead/requeue", {"letters": places})]
    assert "sent to orders.retry.1m" in window.text(".outcome")
    assert window.run(FOCUSED) == "outcome"
    assert window.run(ROWS) == 10


def test_a_dropped_letter_is_gone_and_one_that_failed_stays_with_its_error(
    fake: Fake, window: Browser
) -> None:
    first, second = ({k: each[k] for k in ("part", "place")} for each in fake.letters[:2])
    failed = [second | {"error": "the topic's leader is away"}]
    fake.outcome = {"done": [first | {"what": "dropped"}], "failed": failed}
    opened(window, fake, "dead")
    choose(window, 1)
    choose(window, 2)
    button(window, "Drop 2")
    sees(window, "You cannot take this back", "#question")
    window.click("#question-yes")
    sees(window, "1 letter was dropped, 1 failed", ".outcome")
    assert "the topic's leader is away" in window.text(".outcome")
    assert window.run(ROWS) == 11


def test_a_question_soon_after_another_waits_for_its_own_answer(
    fake: Fake, window: Browser
) -> None:
    opened(window, fake, "dead")
    choose(window, 1)
    press = "const [a] = [...document.querySelectorAll('main button')].filter(e => e.innerText"
    refused = "document.getElementById('question').close('no');"
    # Within one script, before the browser can tell of the first dialog's end.
    window.run(
        f"{press}.startsWith('Requeue')); a.click(); {refused} a.click(); {refused} a.click()"
    )
    window.click("#question-yes")
    sees(window, "1 letter was requeued", ".outcome")
    assert len(fake.posted) == 1


def test_a_refused_request_says_why_and_changes_nothing(fake: Fake, window: Browser) -> None:
    told = {"error": "the token has no right to write.", "todo": "Ask for one that has."}
    fake.refuses["/api/dead/drop"] = (403, told)
    opened(window, fake, "dead")
    choose(window, 1)
    button(window, "Drop 1")
    window.click("#question-yes")
    sees(window, "no right to write. Ask for one", ".outcome")
    assert window.run(ROWS) == 12


def test_without_the_right_there_is_no_button_and_the_page_says_why(
    fake: Fake, window: Browser
) -> None:
    fake.rights = ["read"]
    opened(window, fake, "dead")
    sees(window, "write = true", "main")
    shown = "return [...document.querySelectorAll('main button')].filter(e => e.checkVisibility())"
    assert "Drop" not in window.run(f"{shown}.map(e => e.innerText)")
    assert not window.run("return document.querySelector('.listed input').checkVisibility()")


def test_a_console_that_may_not_write_shows_no_button_to_anybody(
    fake: Fake, window: Browser
) -> None:
    fake.flow["write"] = False
    opened(window, fake, "dead")
    sees(window, "write = true", "main")


def test_filters_are_in_the_address_and_in_what_is_asked(fake: Fake, window: Browser) -> None:
    opened(window, fake, "dead")
    window.type("input[name=part]", "outbox/shop")
    window.type("input[name=reason]", "MSG_SIZE & more")
    window.press("Enter")
    until(lambda: window.run(ROWS) == 1, within=10, what="one letter")
    assert "part=outbox%2Fshop" in window.run("return location.hash")
    asked = next(path for path in reversed(fake.asked) if path.startswith("/api/dead"))
    assert "part=outbox%2Fshop&reason=MSG_SIZE+%26+more" in asked
    window.back()
    until(lambda: window.run(ROWS) == 12, within=10, what="all letters again")


def test_a_payload_is_shown_with_headers_and_a_way_to_the_life_of_the_event(
    fake: Fake, window: Browser
) -> None:
    opened(window, fake, "dead")
    window.click("button.link")
    sees(window, '"total": "99.50"', "pre")
    assert "ce_source" in window.text(".card")
    window.click(".card a")
    sees(window, "became a dead letter")
    assert "It waits for an operator" in window.text(".where-now")
    assert "+0.4 s" in window.text(".timeline")
    assert "its checkpoint cannot be read" in window.text("main")


def test_letters_of_any_number_are_shown_by_pages(fake: Fake, window: Browser) -> None:
    fake.letters = flows.letters(230)
    opened(window, fake, "dead")
    assert window.run(ROWS) == 50
    assert "1 to 50 of 100" in window.text(".pager")
    button(window, "Older ones")
    sees(window, "of 200", ".pager")
    button(window, "Older ones")
    sees(window, "of 230", ".pager")
    button(window, "Next")
    sees(window, "51 to 100", ".pager")
    misses(window, "Older ones", "main")
