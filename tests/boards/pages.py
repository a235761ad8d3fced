"""Make the tables of docs/observability.md: alerts, troubles and panels."""

import re
from collections.abc import Iterator

from tests.boards.blips import BLIPS
from tests.boards.dashboards import panels
from tests.boards.rules import alerts
from tests.boards.troubles import TROUBLES
from tests.support.documents import ROOT

PAGE = ROOT / "docs/observability.md"


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    for name, lines in (("alerts", _alerts()), ("troubles", _troubles()), ("panels", _panels())):
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        made = "\n".join([begin, "", *lines, "", end])
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        text = f"{before}{made}{after}"
        if not opened or not closed:
            msg = f"{PAGE}: it has no place {begin} … {end}"
            raise ValueError(msg)
    return text


def _alerts() -> Iterator[str]:
    yield "| alert | severity | after | says |"
    yield "|---|---|---|---|"
    for each in alerts():
        says = re.sub(r"\{\{ ?(?:\$labels\.(\w+)|\$value)[^}]*\}\}", _shown, summary(each.name))
        yield f"| {linked(each.name)} | {each.severity} | {each.for_} | {says} |"


def _shown(found: re.Match[str]) -> str:
    return f"*{found[1]}*" if found[1] else "*n*"


def summary(name: str) -> str:
    (found,) = [each.annotations["summary"] for each in alerts() if each.name == name]
    return found


def linked(name: str) -> str:
    return f"[{name}](runbooks.md#{name.lower()})"


def _troubles() -> Iterator[str]:
    yield "| trouble | fires |"
    yield "|---|---|"
    for each in TROUBLES:
        yield f"| {each.what} | {', '.join(map(linked, sorted(each.fires)))} |"
    for each in BLIPS:
        yield f"| {each.what} | none, at any minute |"


def _panels() -> Iterator[str]:
    yield "| board | panel | shows |"
    yield "|---|---|---|"
    for each in panels():
        yield f"| {each.board} | {each.title} | {each.about} |"
