"""Large states go on in parts, from a checkpoint that has none, and through restarts."""

import json
from collections import Counter
from collections.abc import Iterable

import pytest

from spark_jobs.errors import QueryFailed
from spark_jobs.stateful import host, state
from tests.spark.fix_stateful import T0, MakeStateful, Sent, Stateful
from tests.spark.whole_states import WholeBucket
from tests.support.fix_stack import MakeTopic

KEYS = 300


def _clicks(topic: str, keys: Iterable[int], at: int) -> list[Sent]:
    """Return records of a kilobyte, so that the state of a bucket is large."""
    return [Sent(topic, f"k{key}", at, f"{key} {at - T0} " + "x" * 1_000, key % 2) for key in keys]


def _read(job: Stateful, rows: int) -> None:
    """Run the job from its checkpoint until it has read as many rows in all."""
    job.run_until(lambda: job.rows() == rows, f"{rows} rows are read")


def _numbers(job: Stateful) -> Counter[int]:
    """Return how many buckets have which parts."""
    found = state._parts(job.spark, job.settings, None)
    return Counter(row["number"] for row in found)


def test_a_checkpoint_of_whole_states_goes_on_in_parts(
    stateful: MakeStateful, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = topic(2)
    fields = {"gap": "5s", "close_after": "off", "max_lag": "off", "aggregate": "last"}
    job = stateful("sessions", [clicks], **fields)
    sent = _clicks(clicks, range(KEYS), T0)
    job.send(*sent)
    with monkeypatch.context() as patch:
        patch.setattr(host, "Bucket", WholeBucket)
        _read(job, len(sent))
    assert sum(each.keys for each in state.read(job.spark, job.settings)) == KEYS

    # Each run is a restart. The first one writes bases, and the others write what has changed.
    for number in range(3):
        more = _clicks(clicks, range(9), T0 + 1_000 * (number + 1))
        job.send(*more)
        sent += more
        _read(job, len(sent))

    assert _numbers(job) == {0: 3, 1: 3, 2: 3}
    buckets = list(state.read(job.spark, job.settings))
    assert sum(each.keys for each in buckets) == sum(each.open for each in buckets) == KEYS
    values = {e["key"]: e["open"][0]["value"] for each in buckets for e in each.entries}
    assert {
        key: value[:8].split("x")[0] for key, value in values.items() if key in {"k8", "k9"}
    } == {
        "k8": "8 3000 ",
        "k9": "9 0 ",
    }
    sizes = sorted(each.size for each in buckets)
    assert sum(sizes) == pytest.approx(job.lines[-1].state_bytes)
    assert 300_000 < sum(sizes) < 400_000

    # The version before names the one that it needs.
    more = _clicks(clicks, [0], T0 + 4_000)
    job.send(*more)
    sent += more
    with monkeypatch.context() as patch:
        patch.setattr(host, "Bucket", WholeBucket)
        with pytest.raises(QueryFailed, match="has format 3"):
            _read(job, len(sent))

    # The last record of each key closes its session.
    last = _clicks(clicks, range(KEYS), T0 + 20_000)
    expected = job.replayed([*sent, *last], at=0)
    job.send(*last)
    job.run_until(lambda: len(job.values()) >= KEYS, "all sessions are closed")

    found = Counter(json.dumps([v["key"], v["start"], v["end"], v["value"]]) for v in job.values())
    results = [line for line in expected if line["kind"] == "result"]
    assert found == Counter(
        json.dumps([line["key"], line["start"], line["end"], line["value"]]) for line in results
    )
    assert not job.late()
