"""
Look the locked packages up in a database of vulnerabilities: `make audit`.

A package with a known vulnerability fails. A machine that reaches no database only says so: what
could not be looked up is no reason to fail, and nobody may take it for a success.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).parents[1] / "requirements"
# The smallest one first; the others in the folder are parts of these.
_FILES = ("build.txt", "tools.txt", "docs.txt", "dev.txt")
_SECONDS = 120


def audited(reports: Iterable[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Return how many packages were looked up, and a line for each vulnerability."""
    known: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        for package in report["dependencies"]:
            if "skip_reason" in package:
                continue
            found = known.setdefault((package["name"], package["version"]), [])
            for each in package["vulns"]:
                fixed = ", ".join(each["fix_versions"]) or "no version yet"
                found.append(f"{each['id']} (fixed in {fixed})")
    lines = [
        f"{name} {version}: {each}"
        for (name, version), found in sorted(known.items())
        for each in dict.fromkeys(found)
    ]
    return len(known), lines


def _report(program: str, file: Path) -> Mapping[str, Any]:
    command = [program, "--format", "json", "--progress-spinner", "off", "--timeout", "5"]
    command += ["--require-hashes", "--disable-pip", "--requirement", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    # Its status is 1 for a vulnerability and for a failure; only the former has a report.
    found: Mapping[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
    return found or {"dependencies": []}


def main(arguments: list[str]) -> int:
    """Return the exit status: 1, if a package has a known vulnerability."""
    (program,) = arguments
    try:
        reports: list[Mapping[str, Any]] = []
        for name in _FILES:
            reports.append(_report(program, REQUIREMENTS / name))
            if not audited(reports)[0]:
                break  # no database answers: the others would get no answer either
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        sys.stdout.write(f"audit: NOT DONE, pip-audit cannot be run here: {error}\n")
        return 0
    number, lines = audited(reports)
    if not number:
        sys.stdout.write("audit: NOT DONE, no database of vulnerabilities can be reached\n")
        return 0
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"audit: {number} packages looked up, {len(lines)} vulnerabilities\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
