"""
Write modules that call from modules that await: `python -m tests.twins`.

Code that calls handlers stands twice, so that neither form pays for the other. The form that
awaits is written by hand. The other one is made from it, and a test compares them.
"""

import re
import subprocess
import sys
from typing import NamedTuple

from tests.support.documents import ROOT

PAIRS = (
    (r"\b(async|await) ", ""),
    (r"\bAsync(?=[A-Z])|\bAwaited(?=[A-Z])|_awaited\b", ""),
    (r"\bAwaitable\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
    (r"\banext\b", "next"),
    (r"\basync handler\b", "handler"),
)
"""Each is a pattern, and the text that takes its place in every module."""


class Twin(NamedTuple):
    """A module, the module that is made from it, and the pairs that hold for this one alone."""

    source: str
    made: str
    own: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """Return the text of the module that is made."""
        text = (ROOT / self.source).read_text(encoding="utf-8")
        for pattern, replacement in (*self.own, *PAIRS):
            text = re.sub(pattern, replacement, text)
        head = f"# `python -m tests.twins` makes this from {self.source}: change it there.\n"
        tidied = _ruff(f"check {_TIDYING}", head + text, self.made)
        return _ruff("format", tidied, self.made)


_TIDYING = "--fix --unsafe-fixes --select=I,F401,UP028,UP034"

TWINS = (
    Twin(
        "dedup/serving/awaited.py",
        "dedup/serving/serving.py",
        (
            (
                r'\A"""\n(.*) async handler, in sequence, on an event loop\.\n(.|\n)*?"""',
                r'"""\1 handler, in sequence, in this thread."""',
            ),
            (
                "from dedup.serving.tasks import AsideInThreads, Desk",
                "from dedup.serving.handover import HandoverReport",
            ),
            (r"\bAsideInThreads\b", "Aside"),
            (r"\bdesk: Desk\b", "report: HandoverReport"),
            (r"\bdesk(\.report)?\b", "report"),
        ),
    ),
)


def _ruff(command: str, text: str, name: str) -> str:
    run = [
        sys.executable,
        "-m",
        "ruff",
        *command.split(),
        "--quiet",
        f"--stdin-filename={name}",
        "-",
    ]
    done = subprocess.run(run, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


if __name__ == "__main__":
    for twin in TWINS:
        (ROOT / twin.made).write_text(twin.text(), encoding="utf-8")
