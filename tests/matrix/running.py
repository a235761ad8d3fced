"""Run the tests of a corner, and count what passed."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree as ET

from dovecote.devstack import versions as servers
from tests.matrix.corners import Corner
from tests.matrix.environments import CannotBeHad, environment, exact, versions
from tests.support.documents import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A corner that ran, and the results of its tests."""

    corner: str
    postgres: str
    kafka: str
    python: str
    packages: str
    tests: str = "all"
    """Whether it ran `all` of its tests, or a `few`."""

    versions: Mapping[str, str] = field(default_factory=dict)
    passed: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: int = 0
    lacking: str = ""
    """The reason, if it could not run."""

    failures: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.failed and bool(self.passed or self.lacking)

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def run(corner: Corner, workers: int, *, short: bool) -> Ran:
    """Run the tests of a corner, or a few of them; say so if there is no environment for them."""
    began = time.monotonic()
    ran = Ran(
        corner=corner.name,
        postgres=servers.POSTGRES.revisions[corner.postgres],
        kafka=servers.KAFKA.revisions[corner.kafka],
        python=corner.python,
        packages=str(corner.packages),
        tests="few" if short else "all",
    )
    try:
        python = environment(corner)
    except CannotBeHad as error:
        return replace(ran, lacking=str(error))
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        chosen = corner.shortened if short else corner
        status = _pytest(chosen, python, report, workers)
        found, failures = counted(report)
    if status not in {0, 1}:  # pytest did not get to the tests
        found["failed"] += 1
        failures += (f"pytest ended with {status}",)
    return replace(
        ran,
        python=exact(python),
        versions=versions(python),
        passed=found["passed"],
        skipped=found["skipped"],
        failed=found["failed"],
        seconds=round(time.monotonic() - began),
        failures=failures,
    )


def _pytest(corner: Corner, python: Path, report: Path, workers: int) -> int:
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    if workers > 1:
        command += [f"--numprocesses={workers}", "--dist=loadfile", "--no-loadscope-reorder"]
    # Another version of a library may warn of what ours does not use.
    command += ["-W", "default::DeprecationWarning", "-W", "default::PendingDeprecationWarning"]
    command += ["-m", "not containers", *(str(ROOT / "tests" / file) for file in corner.tests)]
    environ = {
        **os.environ,
        servers.POSTGRES.variable: corner.postgres,
        servers.KAFKA.variable: corner.kafka,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


def counted(report: Path) -> tuple[Counter[str], tuple[str, ...]]:
    """Return how many tests of pytest's report passed, were skipped or failed, and the last."""
    found: Counter[str] = Counter(passed=0, skipped=0, failed=0)
    failures: list[str] = []
    if not report.exists():
        return found, ()
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  # pytest's own report
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            found["failed"] += 1
            failures.append(f"{case.get('classname', '')}::{case.get('name', '')}")
        else:
            found["skipped" if "skipped" in kinds else "passed"] += 1
    return found, tuple(failures)
