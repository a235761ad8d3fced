"""The memory of a bucket, without Spark."""

import marshal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from outbox.envelope import ID, Record
from spark_jobs.errors import StateTooLarge
from spark_jobs.policy import remembering
from spark_jobs.policy.remembering import (
    NOW,
    ByIdentity,
    RememberConfig,
    Remembering,
    given,
)
from spark_jobs.rows.packets import Pack
from spark_jobs.rows.records import Shipped
from tests.unit.spark_jobs.made_rows import Message, packed, read
from tests.unit.spark_jobs.stateful.stores import Parts

AT = 1_700_000_000_000


class State:
    """Spark's value for a bucket."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.parts = Parts()

    def get(self) -> tuple[bytes] | None:
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value


@pytest.fixture(autouse=True)
def _collecting_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "collect_rarely", lambda: None)


def _bucket(state: State, **changes: Any) -> Remembering:
    fields: dict[str, Any] = {
        "query": f"q{id(state)}",
        "within": 1_000,
        "buckets": (7,),
        "max_bucket_bytes": 10_000,
    }
    bucket = Remembering(RememberConfig(**{**fields, **changes}))
    handle = SimpleNamespace(getValueState=lambda *_: state, getMapState=lambda *_: state.parts)
    bucket.init(handle)  # type: ignore[arg-type]  # all that is asked of it
    return bucket


Row = tuple[int, bytes | None, str | None, int]
"""Offset, key, id, time."""


def _records(rows: Sequence[Row]) -> list[Record]:
    return [
        Record("t", 0, offset, time, key, b"{}", [] if id_ is None else [(ID, id_.encode())])
        for offset, key, id_, time in rows
    ]


def _step(bucket: Remembering, rows: Sequence[Row]) -> Any:
    found = packed(Pack((7,), ByIdentity()), [read(_records(rows))])[7]
    frame = pd.DataFrame({"packet": found, NOW: [AT + 10_000]})
    (said,) = bucket.handleInputRows((7,), iter([frame]), SimpleNamespace())  # type: ignore[arg-type]  # no timers
    return said.iloc[0]


def _offsets(packet: bytes) -> list[int]:
    return [row[2] for row in marshal.loads(packet)[1]]  # noqa: S302  # our own


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


def test_records_that_may_be_copies_share_a_bucket() -> None:
    rows: list[Row] = [
        *((n, b"a", f"{n}", AT) for n in range(20)),
        *((n, None, "x", AT) for n in range(20, 40)),
        *((n, None, None, AT) for n in range(40, 90)),
    ]
    found = ByIdentity()(0, [Message(each) for each in _records(rows)], 8)

    assert len({*found[:20]}) == len({*found[20:40]}) == 1
    assert {*found[40:]} == {*range(8)}


def test_the_digest_is_that_of_the_places_that_pass() -> None:
    def digest(*rows: tuple[Any, ...]) -> str:
        return given(rows).digest

    rows = [("t", 0, 5, AT, b"k"), ("t", 0, 7, AT, b"k"), ("u", 1, 5, AT, b"k")]
    assert given(rows).ranges == {"t": {0: (5, 7)}, "u": {1: (5, 5)}}
    same = digest(*rows)
    assert digest(*[(*row[:4], b"other") for row in rows]) == same
    assert len({same, digest(*rows[1:]), digest(rows[0], ("t", 1, *rows[1][2:]), rows[2])}) == 3
    assert digest(rows[0], rows[1], ("u", 1, 5, AT + 1, b"k")) != same


def test_what_passes_knows_the_ids_of_its_topics_and_places_are_not_remembered() -> None:
    rows: list[Row] = [(0, b"a", None, AT), (1, b"a", None, AT), (2, b"a", "x", AT)]
    (batch,) = Pack((7,), ByIdentity())(read(_records(rows)), {"t": "ID"})
    frame = pd.DataFrame({"packet": [row["packet"] for row in batch.to_pylist()], NOW: [AT]})
    (said,) = _bucket(State()).handleInputRows((7,), iter([frame]), SimpleNamespace())  # type: ignore[arg-type]  # no timers
    ids, rest = marshal.loads(said.iloc[0]["packet"])  # noqa: S302  # our own

    assert said.iloc[0]["known"] == 1
    passed = Shipped(rest, ids)
    assert [passed.identity(row).name for row in range(3)] == ["ID/0/0@t", "ID/0/1@t", "x@t"]
