"""A batch is about as large as the settings allow."""

import pytest

from tests.spark.fix_spark import MakeJob
from tests.spark.fix_stateful import MakeStateful, Sent
from tests.support.fix_stack import MakeTopic

RECORDS, BYTES = 60, 10_000
AT_ONCE = 10
PARTITIONS = 4
"""The number that a topic has; a batch takes at least one record of each."""


@pytest.mark.parametrize("how", ["partitions", "shuffle", "remember"])
def test_a_job_reads_as_many_records_as_have_so_many_bytes(job: MakeJob, how: str) -> None:
    dedup = job(**({"remember": "1h"} if how == "remember" else {})).with_(
        source={"max_bytes_per_trigger": AT_ONCE * BYTES},
        spark={"grouping": "auto" if how == "remember" else how},
    )
    large = b'"' + b"x" * (BYTES - 2) + b'"'
    dedup.send(*((f"k{n}", large, ()) for n in range(RECORDS)))

    lines = dedup.run()

    assert sum(line.rows for line in lines) == len(dedup.output()) == RECORDS
    assert lines[0].rows <= PARTITIONS  # nothing is known yet: each may be large
    assert AT_ONCE / 2 < max(line.rows for line in lines) <= AT_ONCE + PARTITIONS


def test_a_stateful_job_does_so_too(stateful: MakeStateful, topic: MakeTopic) -> None:
    clicks = topic(PARTITIONS)
    sessions = stateful("sessions", [clicks], gap="5s", aggregate="count").with_(
        source={"max_bytes_per_trigger": AT_ONCE * BYTES}
    )
    sessions.send(
        *(Sent(clicks, f"k{n}", 1_000 + n, "x" * BYTES, n % PARTITIONS) for n in range(RECORDS))
    )

    sessions.run_until(lambda: sessions.rows() >= RECORDS, "all records are read")

    rows = [line.rows for line in sessions.lines]
    assert sum(rows) == RECORDS
    assert AT_ONCE / 2 < max(rows) <= AT_ONCE + PARTITIONS
