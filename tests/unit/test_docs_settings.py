"""docs/settings.md is what the classes of the settings have."""

from tests.settings_page import PAGE, page


def test_the_page_of_every_setting_is_that_of_the_classes() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.settings_page"


def test_every_setting_has_a_meaning() -> None:
    assert [line for line in page().splitlines() if line.endswith("|  |")] == []
