"""The memory of a bucket, without Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from outbox.envelope import ID
from spark_jobs.errors import StateTooLarge
from spark_jobs.policy.remembering import RememberConfig, Remembering, _unpacked
from spark_jobs.rows import columns, packets
from spark_jobs.rows.packets import Pack

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
AT = 1_700_000_000_000


class State:
    """Spark's value for a bucket."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None

    def get(self) -> tuple[bytes] | None:
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value


def _bucket(state: State, **changes: Any) -> Remembering:
    fields: dict[str, Any] = {
        "query": f"q{id(state)}",
        "within": 1_000,
        "buckets": (7,),
        "max_bucket_bytes": 10_000,
    }
    bucket = Remembering(RememberConfig(**{**fields, **changes}))
    bucket.init(SimpleNamespace(getValueState=lambda *_: state))  # type: ignore[arg-type]  # all that is asked of it
    return bucket


def _packets(rows: Sequence[tuple[int, bytes | None, str | None, int]]) -> list[bytes]:
    """Return packets of rows: offset, key, id, time."""
    table = pa.table(
        {
            "topic": pa.array(["t"] * len(rows)),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array([row[0] for row in rows], pa.int64()),
            "timestamp": pa.array(
                [datetime.fromtimestamp(row[3] / 1000, UTC) for row in rows],
                pa.timestamp("us", "UTC"),
            ),
            "key": pa.array([row[1] for row in rows], pa.binary()),
            "value": pa.array([b"{}" for _ in rows], pa.binary()),
            "headers": pa.array(
                [
                    [] if row[2] is None else [{"key": ID, "value": row[2].encode()}]
                    for row in rows
                ],
                HEADERS,
            ),
            packets.BUCKET: pa.array([7] * len(rows), pa.int32()),
        }
    )
    (packed,) = Pack((7,), None)(table.to_batches())
    found: list[bytes] = packed.column("packet").to_pylist()
    return found


def _step(bucket: Remembering, rows: Sequence[tuple[int, bytes | None, str | None, int]]) -> Any:
    frame = pd.DataFrame({"packet": _packets(rows), columns.NOW: [AT + 10_000]})
    (said,) = bucket.handleInputRows((7,), iter([frame]), SimpleNamespace())  # type: ignore[arg-type]  # no timers
    return said.iloc[0]


def _offsets(packet: bytes) -> list[int]:
    rows = columns.read(_unpacked(iter([packet])))
    return [] if rows is None else rows.offsets


def test_a_duplicate_of_an_earlier_batch_is_taken_out_and_counted() -> None:
    state = State()
    first = _step(_bucket(state), [(0, b"a", "x", AT), (1, b"a", "y", AT), (2, b"a", "x", AT)])
    # Another worker, which knows only what Spark has.
    second = _step(
        _bucket(state, query="elsewhere"),
        [
            (5, None, "z", AT + 9),
            (3, b"a", "y", AT + 500),
            (4, b"a", None, AT),
            (6, b"a", "x", AT),
        ],
    )

    assert _offsets(first["packet"]) == [0, 1]
    assert (first["taken"], first["duplicates"], first["known"]) == (2, 1, 2)
    assert sorted(_offsets(second["packet"])) == [4, 5]
    assert (second["taken"], second["duplicates"]) == (2, 2)
    assert second["newest"] == AT + 500
    assert second["bytes"] == len(state.value[0] if state.value else b"")


def test_a_batch_of_duplicates_leaves_nothing_to_handle() -> None:
    state = State()
    bucket = _bucket(state)
    _step(bucket, [(0, b"a", "x", AT)])

    said = _step(bucket, [(1, b"a", "x", AT)])

    assert (_offsets(said["packet"]), said["taken"], said["duplicates"]) == ([], 0, 1)


def test_a_memory_that_outgrows_its_limit_stops_the_job() -> None:
    bucket = _bucket(State(), max_bucket_bytes=100)

    with pytest.raises(StateTooLarge, match="remember for a shorter time"):
        _step(bucket, [(n, b"a", f"{n}", AT) for n in range(10)])
