"""
Order the files of tests, the longest first, so that no worker begins one when the others end.

`python -m tests.durations report.xml` writes `durations.json` from the report of a run with
`make test ARGS='--junitxml=report.xml'`.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

FOLDER = Path(__file__).parent
_FILE = FOLDER / "durations.json"
# Shorter files come in any order.
_LEAST_SECONDS = 10


def known() -> dict[str, int]:
    """Return the seconds of each long file, by its path below the tests."""
    found: dict[str, int] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def main(report: str) -> None:
    seconds: Counter[str] = Counter()
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  # pytest's own report
        module = case.get("classname", "").removeprefix("tests.").replace(".", "/")
        seconds[f"{module}.py"] += round(1000 * float(case.get("time", 0)))
    found = {
        file: round(spent / 1000)
        for file, spent in seconds.most_common()
        if spent >= 1000 * _LEAST_SECONDS and (FOLDER / file).exists()
    }
    _FILE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
