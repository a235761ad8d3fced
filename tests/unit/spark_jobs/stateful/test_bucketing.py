"""Records that an operator holds for the same key share a bucket."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.envelope import Record
from spark_jobs.operators.aggregation.config import Step
from spark_jobs.operators.aggregation.keys import key_of
from spark_jobs.operators.aggregation.settings import AggregationSettings, Text
from spark_jobs.operators.reading import OperatorSettings, many_reader
from spark_jobs.operators.settings import DelaySettings, SessionsSettings
from spark_jobs.stateful.bucketing import bucketing
from tests.unit.spark_jobs.made_rows import Message

BUCKETS = 5
BY_FIELDS = SessionsSettings.model_validate({"gap": "1s", "key": ["a", "b"]})

_field = st.sampled_from([None, 1, 1.0, "1", True, "x", [1], {"c": None}])
_value = st.one_of(
    st.fixed_dictionaries({}, optional={"a": _field, "b": _field}).map(json.dumps),
    st.sampled_from(["[]", "null", "{", "7", '{"a":"x", "b":"x"}', '{"b":"x","a":"x"}']),
)


def _record(n: int, key: bytes | None = b"k", **more: Any) -> Record:
    return Record("t", n % 3, n, 0, key, b"{}", [])._replace(**more)


def _buckets(settings: OperatorSettings, records: Sequence[Record]) -> list[int]:
    """Return the bucket of each record, alone; as often as they come together, it is the same."""
    laid = bucketing(settings)
    found: list[int] = []
    for each in records:
        numbers = laid(each.partition, [Message(each)], BUCKETS)
        found += [numbers] if isinstance(numbers, int) else numbers
    for partition in {each.partition for each in records}:
        rows = [n for n, each in enumerate(records) if each.partition == partition]
        again = laid(partition, [Message(records[n]) for n in rows], BUCKETS)
        if not isinstance(again, int):
            assert [*again] == [found[n] for n in rows]
    assert {*found} <= {*range(BUCKETS)}
    return found


def _by_key(keys: Sequence[object], buckets: Sequence[int]) -> dict[object, set[int]]:
    found: dict[object, set[int]] = defaultdict(set)
    for key, bucket in zip(keys, buckets, strict=True):
        found[key].add(bucket)
    found.pop(None, None)
    return found


@given(st.lists(_value, min_size=1, max_size=30))
def test_fields_that_make_the_same_key_make_the_same_bucket(values: list[str]) -> None:
    records = [_record(n, value=value.encode()) for n, value in enumerate(values)]
    buckets = _buckets(BY_FIELDS, records)
    keys: list[bytes | None] = [None] * len(records)
    for made in many_reader(BY_FIELDS)(records, range(len(records)), []):
        keys[made.row] = made.key
    assert all(len(of) == 1 for of in _by_key(keys, buckets).values())


@pytest.mark.parametrize(
    "settings", [DelaySettings(), SessionsSettings.model_validate({"gap": "1s"})]
)
def test_a_record_goes_by_its_own_key_and_without_one_by_its_partition(
    settings: OperatorSettings,
) -> None:
    records = [_record(n, b"k%d" % (n % 40)) for n in range(200)]
    found = _by_key([each.key for each in records], _buckets(settings, records))
    assert all(len(of) == 1 for of in found.values())
    assert set.union(*found.values()) == {*range(BUCKETS)}
    assert _buckets(settings, [_record(n, None) for n in range(6)]) == [0, 1, 2, 0, 1, 2]


def test_records_that_move_the_same_clock_share_a_bucket() -> None:
    records = [_record(n, b"k%d" % n, partition=n) for n in range(9)]
    for stream_time, expected in (
        ("per_partition", [n % BUCKETS for n in range(9)]),
        ("global", [0] * 9),
    ):
        settings = SessionsSettings.model_validate({"gap": "1s", "stream_time": stream_time})
        assert _buckets(settings, records) == expected


def _step(by: dict[str, Any], **more: Any) -> AggregationSettings:
    place = {"type": "destination", "topic": "out", "config": {"type": "kafka", "name": "c"}}
    step = Step.model_validate(
        {
            "name": "s",
            "type": "aggregation",
            "key": by,
            "trigger": {"type": "count", "count": 2, "timeout": 1000},
            "destination": {"name": "d", **place},
            "error": {"name": "e", **place, "topic": "dead"},
        }
    )
    return AggregationSettings(step=step, **more)


@pytest.mark.parametrize(
    "key",
    [{"type": "key"}, {"type": "headers", "keys": ["h", "i"]}, {"type": "hash"}],
)
def test_an_aggregations_key_decides(key: dict[str, Any]) -> None:
    settings = _step(key)
    records = [
        _record(n, b"k%d" % (n % 7), value=b"v%d" % (n % 8), headers=[("h", b"%d" % (n % 9))] * 2)
        for n in range(100)
    ]
    records = [each._replace(headers=[*each.headers, ("i", b"|")]) for each in records]
    of = key_of(settings.step.key)
    assert of is not None
    found = _by_key([of(each) for each in records], _buckets(settings, records))
    assert len(found) in {7, 8, 9}
    assert all(len(buckets) == 1 for buckets in found.values())
    _buckets(settings, [_record(0), _record(1, None, value=None)])  # no header: any will do


def test_a_key_script_decides() -> None:
    script = 'def key(IN, Env):\n    return IN["a"]\n'
    text = Text(path="key.star", text=script)
    settings = _step({"type": "dsl", "path": "key.star"}, key=text)
    values = [b'{"a":"x","n":1}', b'{"a":"x","n":2}', b"{", b"{}"]
    records = [_record(n, None, value=value, partition=0) for n, value in enumerate(values)]
    found = _buckets(settings, records)
    assert found[0] == found[1]
    assert found[2] == found[3] == 0
