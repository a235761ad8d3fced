"""
Jobs on a standalone cluster, with checkpoints on S3, lose and double nothing when they are killed.

`DOVECOTE_KILLS_ON_CLUSTER=20` makes it long, as `python -m proof --spark dedup` does.
"""

import os

import pytest

from dovecote.devstack.places import temporary_directory
from proof.spark.run import Options, run

KILLS = int(os.environ.get("DOVECOTE_KILLS_ON_CLUSTER", "2"))


@pytest.mark.slow
@pytest.mark.timeout(max(900, 240 * KILLS))
def test_kills_of_drivers_and_workers_change_nothing_of_the_results() -> None:
    said: list[str] = []
    folder = temporary_directory(None)

    outcome = run(
        Options(directory=folder, jobs=("dedup", "sessions"), kills=KILLS, rows=600, batch=300),
        said.append,
    )

    assert outcome.is_well, outcome.fields()
    assert outcome.killed.total() == KILLS == len(said)
