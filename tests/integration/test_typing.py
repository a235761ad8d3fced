"""Programs of users pass a type checker that knows no plugin of pydantic."""

import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT
from tests.support.waiting import patient

CONFIG = """
[mypy]
strict = true
explicit_package_bases = true
"""


def test_users_programs_pass_mypy_as_strict_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    config.write_text(CONFIG)
    command = ["mypy", "--config-file", str(config), "--cache-dir", str(tmp_path / "cache")]
    ran = subprocess.run(
        [sys.executable, "-m", *command, "tests/typing/kit.py", "tests/typing/shop.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
