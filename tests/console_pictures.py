"""Make the pictures of docs/console.md: `python -m tests.console_pictures` writes docs/images."""

from pathlib import Path

from tests.support import console_flows as flows
from tests.support.browser import browser
from tests.support.console_fake import fake_console
from tests.support.fix_console import VIEWS, sees

IMAGES = Path(__file__).parents[1] / "docs" / "images"

WANTED = [
    ("flow", "light"),
    ("part", "light"),
    ("dead", "dark"),
    ("find", "light"),
]


def main() -> None:
    """Write one picture of each view that the docs show."""
    IMAGES.mkdir(exist_ok=True)
    with fake_console() as fake, browser() as window:
        window.resize(1280, 1080)
        fake.flow = flows.ill()
        for view, scheme in WANTED:
            link, text = VIEWS[view]
            window.prefer(scheme=scheme, motion="reduce")
            window.open("about:blank")
            window.open(fake.url + link)
            sees(window, text)
            sees(window, "as of", "#seen")
            if view == "part":
                sees(window, "Rate", "figure")
            window.screenshot(IMAGES / f"console-{view}-{scheme}.png")


if __name__ == "__main__":
    main()
