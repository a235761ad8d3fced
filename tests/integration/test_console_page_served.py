"""The console's page as its own server serves it, over parts that are made up."""

import pytest

from tests.support.browser import Browser
from tests.support.console_demo import demo
from tests.support.fix_console import sees, violations, window

__all__ = ["window"]


@pytest.mark.parametrize("link", ["#/", "#/dead", "#/log"])
def test_each_view_works_with_the_answers_of_the_real_server(link: str, window: Browser) -> None:
    with demo() as url:
        window.open("about:blank")
        window.open(f"{url.rstrip('/')}/{link}")
        sees(window, "as of", "#seen")
        assert window.text("#stale") == ""
        if link == "#/":
            sees(window, "trouble", "h1")
            window.click(".head")
            sees(window, "History", "main")
            assert window.text(".note.bad") == ""
        assert violations(window) == []
        assert window.run("return getComputedStyle(document.body).margin") == "0px"
