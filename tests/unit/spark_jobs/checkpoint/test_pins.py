"""The settings with which a checkpoint must go on."""

import pytest

from spark_jobs.checkpoint.pins import HASH, JOB, MURMUR2, QUERY, TOPICS, Pins, refusal

PINS: Pins = {JOB: "pairing", QUERY: "calls", TOPICS: ["a", "m"], "state.buckets": 16}


def _refused(changed: Pins, *, adopt: bool = False) -> str | None:
    return refusal("/c", PINS, {**PINS, **changed}, adopt=adopt)


def test_the_same_settings_go_on_and_what_was_not_pinned_may_be_anything() -> None:
    assert _refused({}) is None
    assert refusal("/c", {}, PINS) is None
    assert refusal("/c", {"state.buckets": 16}, PINS) is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({JOB: "dedup"}, "run that with it, or give this job a `spark.checkpoint` of its own"),
        ({QUERY: "x"}, "set `spark.query` back"),
        ({TOPICS: ["a", "b"]}, "topics a, m, not a, b: set `source.topics` back"),
        ({"state.buckets": 8}, "made with state.buckets = 16, not 8: set it back"),
    ],
)
def test_what_is_not_the_same_is_refused_with_the_setting_that_resolves_it(
    changed: Pins, told: str
) -> None:
    assert told in (_refused(changed) or "")


def test_name_and_topics_may_be_taken_over_and_nothing_that_state_rests_on() -> None:
    assert _refused({QUERY: "x", TOPICS: ["b"]}, adopt=True) is None
    assert _refused({"state.buckets": 8}, adopt=True)
    assert _refused({JOB: "dedup"}, adopt=True)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_state_in_buckets_of_an_earlier_version_is_refused(*, adopt: bool) -> None:
    now = {**PINS, HASH: MURMUR2}
    told = refusal("/c", PINS, now, adopt=adopt) or ""
    assert "by an earlier version's hash" in told
    assert "begin with a new checkpoint" in told
    assert refusal("/c", now, now) is None
    assert refusal("/c", {JOB: "pairing"}, {JOB: "pairing", HASH: MURMUR2}) is None
