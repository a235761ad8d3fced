"""Tell what ran: a table for the terminal, and `docs/compatibility.md` from `ran.json`."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.matrix.corners import CORNERS
from tests.matrix.running import Ran
from tests.support.documents import ROOT

NOTES = Path(__file__).with_name("ran.json")
PAGE = ROOT / "docs/compatibility.md"

_HEAD = """\
# Versions that are tested

<!-- `make matrix` writes this; `python -m tests.matrix --page` makes it from its ran.json. -->

This page says with which versions of servers, Python and packages the tests passed. `make matrix`
wrote it. The bounds of the packages come from `pyproject.toml`, and a test compares the lower ones
with what ran here.

| | oldest | newest |
|---|---|---|
"""

_CORNERS = """
## Corners

Each line is a *corner*: versions that meet. It runs the tests of capture, log, roles, relay,
schema, shards, inbox, consumer, push, dead letters, reconciliation and producer, or some of
them. Corners with PySpark run tests of the Spark jobs. `.ci/run` runs a short form of the first
corner, and all tests with the newest Postgres and the locked packages.
With `--short`, a *few* of its tests ran, otherwise *all*. A skipped test needs something that the
corner's servers do not have.

"""

_REST = """
*Oldest* packages are the lower bounds in `pyproject.toml`; *newest* ones are what its upper bounds
allow; *locked* ones are those in `requirements/dev.txt`. Libraries that a service
may have besides, such as SQLAlchemy, Django or OpenTelemetry, are tested as they are locked.

```console
$ make matrix                             # all corners: about half an hour on two processors
$ make matrix ARGS=oldest                 # one of them
$ make matrix ARGS=--short                # all corners with a few tests each: ten minutes
$ make matrix ARGS=--quick                # what CI runs
```

The matrix needs uv, which `make` installs, and finds the Pythons that uv finds. To run your own
tests on other servers, see [the stack](stack.md#other-versions).

## Limits of older versions

| version | limit |
|---|---|
| Kafka before 4.0 | no `protocol = "consumer"`, which is refused; `classic` is the default |
| Postgres before 17 | no slots on standbys: after a promotion, [the slot](relay.md#the-slot) is missing |
| libpq before 17 | no rows in chunks: the capture from the table takes about twice the processor time; a current `psycopg[binary]` carries a newer one |
| PySpark before 4.2 | refused: sources in Python know neither limits of a batch nor its beginning |

Nobody has built Postgres 19 for this matrix yet.

## Other systems

All of this ran on Linux, on x86-64. macOS is for development only, and no test has run there;
[On macOS](stack.md#on-macos) says what differs by design. Windows is not supported.
"""  # noqa: E501  # rows of a table


def note(ran: Iterable[Ran]) -> None:
    """Note what ran, in place of what the same corners said before; write the page."""
    known = {each.corner: each for each in noted()} | {each.corner: each for each in ran}
    order = [corner.name for corner in CORNERS if corner.name in known]
    held = [known[name].fields() for name in order]
    NOTES.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    write()


def noted() -> list[Ran]:
    """Return what ran, as it was noted."""
    if not NOTES.exists():
        return []
    held = json.loads(NOTES.read_text(encoding="utf-8"))
    return [Ran(**{**each, "failures": tuple(each["failures"])}) for each in held]


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(noted()), encoding="utf-8")
    sys.stderr.write(f"{PAGE.relative_to(ROOT)}\n")


def page(ran: Sequence[Ran]) -> str:
    """Return the page that says what `ran`."""
    extremes = "".join(f"| {what} | {least} | {most} |\n" for what, least, most in _extremes(ran))
    return f"{_HEAD}{extremes}{_CORNERS}{table(ran)}\n{_untried(ran)}{_REST}"


def table(ran: Iterable[Ran]) -> str:
    """Return a table of corners, in Markdown."""
    head = "corner", "Postgres", "Kafka", "Python", "packages", "PySpark", "tests", "passed"
    rows = [(*head, "skipped", "failed", "seconds"), *(_row(each) for each in ran)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| "
        + " | ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(each: Ran) -> tuple[str, ...]:
    told = each.postgres, each.kafka, each.python, each.packages
    if each.lacking:
        return (each.corner, *told, "—", each.tests, "not run", "", "", "")
    spark = each.versions.get("pyspark", "—") if each.corner.startswith("spark") else "—"
    counts = each.passed, each.skipped, each.failed, each.seconds
    return (each.corner, *told, spark, each.tests, *(str(count) for count in counts))


def _untried(ran: Iterable[Ran]) -> str:
    lines = [f"* `{each.corner}` did not run: {each.lacking}\n" for each in ran if each.lacking]
    return "\n" + "".join(lines) if lines else ""


def _extremes(ran: Iterable[Ran]) -> Iterator[tuple[str, str, str]]:
    """Yield the oldest and the newest version of each part."""
    found: dict[str, set[str]] = {}
    for each in ran:
        if each.lacking or each.failed:
            continue
        parts = {"PostgreSQL": each.postgres, "Apache Kafka": each.kafka, "Python": each.python}
        for what, version in (parts | dict(each.versions)).items():
            found.setdefault(what, set()).add(version)
    for what, versions in found.items():
        least, *_, most = sorted(versions, key=_order) * 2
        yield what, least, most


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
