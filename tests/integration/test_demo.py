"""The whole demo as its user runs it, on few flights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import patient

FIELDS = (
    "committed",
    "published",
    "lost",
    "duplicated",
    "out_of_order",
    "dedup_expected",
    "dedup_got",
    "dedup_wrong",
    "retries",
    "came_back",
    "dead_letters",
    "doubled",
    "trips",
    "days",
    "aggregated_wrong",
    "kills",
    "seconds",
)


def dovecote(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from dovecote.cli.main import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=patient(170),
        check=False,
    )


@pytest.mark.slow
def test_the_demo_ends_with_all_numbers_agreeing_and_says_so_in_one_line(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ended = dovecote("demo", "--flights", "1500", "--json", "--keep", str(kept))
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()
    found = json.loads(line)
    assert tuple(found) == FIELDS
    assert found["committed"] == found["published"] > 4_500
    nothing = ("lost", "duplicated", "out_of_order", "dedup_wrong", "doubled", "aggregated_wrong")
    assert not any(found[name] for name in nothing)
    assert found["dedup_expected"] == found["dedup_got"] > 1_000
    assert found["retries"] == found["came_back"] > 0
    assert found["trips"] > found["days"] > 500
    assert found["dead_letters"] > 0
    assert found["kills"] == 2
    assert "killed with SIGKILL" in ended.stderr
    # The files that a reader may want afterwards, and no password in them.
    assert (kept / "checkpoints" / "days" / "metadata").exists()
    assert {"relay.log", "spark.log"} <= {file.name for file in (kept / "logs").iterdir()}
    assert 'password = { env = "PGPASSWORD" }' in (kept / "relay.toml").read_text()
    assert (kept / "dedup.toml").exists()


def test_a_folder_with_something_in_it_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ended = dovecote("demo", "--keep", str(tmp_path))
    assert ended.returncode == 2
    assert f"--keep {tmp_path} exists and is not an empty folder" in ended.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
