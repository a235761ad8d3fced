"""Collect every file that is made of the boards and the rules."""

from pathlib import Path

from tests.boards import dashboards, pages
from tests.boards.rules import FILES, FOLDER
from tests.support.documents import ROOT

CHART = ROOT / "compose/helm/files"


def made() -> dict[Path, str]:
    """Return the text of each file by its path."""
    found = {pages.PAGE: pages.page(pages.PAGE.read_text(encoding="utf-8"))}
    for name, text in dashboards.files().items():
        found[FOLDER / "dashboards" / name] = text
        found[CHART / "dashboards" / name] = text
    for file in FILES:
        # A chart reads only files of its own folder.
        found[CHART / "rules" / file.name] = file.read_text(encoding="utf-8")
    return found
