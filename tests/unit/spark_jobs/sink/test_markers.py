"""The contents of a marker, and the decisions that follow."""

from dataclasses import replace

import pytest

from spark_jobs.sink import markers
from spark_jobs.sink.markers import Committed, Counts, Marker, Refused, Turn, Write, decide

TURN = Turn(query="q", batch=7, partition=1, partitions=4)
MARKER = Marker(
    query="q",
    batch=7,
    partition=1,
    partitions=4,
    digest="d",
    ranges={"in": {0: (5, 9), 3: (1, 1)}},
    counts=Counts(rows=6, handled=2, skipped={"duplicate": 3}, retried=1),
)


def test_a_marker_comes_back_as_it_was_encoded() -> None:
    assert Marker.decode(MARKER.encode()) == MARKER


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"format": 2}', b'{"format": 1}', b"\xff"])
def test_what_is_no_marker_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="marker"):
        Marker.decode(value)


def test_without_a_marker_the_turn_is_written() -> None:
    assert decide(None, TURN, digest="d") == Write()


def test_after_an_earlier_batch_the_turn_is_written() -> None:
    assert decide(replace(MARKER, batch=6), TURN, digest="other") == Write()


def test_a_committed_turn_is_left_alone() -> None:
    assert decide(MARKER, TURN, digest="d") == Committed(MARKER)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_turn_that_comes_after_a_later_batch_is_refused_for_its_rows_may_be_others(
    *, adopt: bool
) -> None:
    decision = decide(replace(MARKER, batch=9), TURN, digest="other", adopt=adopt)

    assert isinstance(decision, Refused)
    assert "another run of this job has gone on" in decision.reason


@pytest.mark.parametrize(
    "marker",
    [
        replace(MARKER, query="another"),
        replace(MARKER, query="another", batch=3),
        replace(MARKER, partitions=8),
        replace(MARKER, partitions=8, batch=3),
        replace(MARKER, digest="of other rows"),
    ],
)
def test_a_marker_of_another_query_count_or_input_is_refused_naming_the_way_out(
    marker: Marker,
) -> None:
    decision = decide(marker, TURN, digest="d")

    assert isinstance(decision, Refused)
    assert "--adopt" in decision.reason
    assert decide(marker, TURN, digest="d", adopt=True) == Write()


def test_adopting_does_not_write_again_what_is_committed() -> None:
    assert decide(MARKER, TURN, digest="d", adopt=True) == Committed(MARKER)


def test_a_query_may_start_with_its_own_markers() -> None:
    assert markers.refusal(MARKER, TURN) is None
    assert markers.refusal(replace(MARKER, batch=2), TURN) is None


def test_a_query_may_not_start_before_its_markers() -> None:
    reason = markers.refusal(replace(MARKER, batch=8), TURN)

    assert reason is not None
    assert "older checkpoint" in reason


def test_an_adopted_marker_lets_the_query_go_on_with_this_batch() -> None:
    found = replace(MARKER, query="another", batch=90)

    adopted = markers.adopt(found, TURN)

    assert adopted.adopted == "another"
    assert markers.refusal(adopted, TURN) is None
    assert decide(adopted, TURN, digest="any") == Write()


def test_a_batch_half_written_with_another_count_cannot_be_adopted() -> None:
    assert markers.half_done(replace(MARKER, partitions=2), TURN) is not None
    assert markers.half_done(replace(MARKER, partitions=2, batch=6), TURN) is None
    assert markers.half_done(replace(MARKER, partitions=2, query="another"), TURN) is None


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("filtered", "filtered"),
        ("superseded by 0190", "superseded"),
        ("duplicate of a b", "duplicate"),
        ("handler: not ours", "handler"),
    ],
)
def test_skips_are_counted_by_kind(reason: str, kind: str) -> None:
    assert markers.kind(reason) == kind


def test_counts_add_up() -> None:
    one = Counts(rows=3, handled=1, skipped={"filtered": 2})
    two = Counts(rows=4, skipped={"duplicate": 1, "filtered": 1}, retried=1, dead=1)

    assert one + two == Counts(
        rows=7, handled=1, skipped={"duplicate": 1, "filtered": 3}, retried=1, dead=1
    )


def test_a_copy_of_a_running_job_is_told_so_and_not_to_adopt() -> None:
    reason = "marker partition 0 belongs to another query: use the old, or run once with --adopt"
    told = markers.with_others(reason, ago=0, moves=True)
    assert "is going on and writes markers (marker partition 0 belongs to another query)" in told
    assert "Do not use --adopt" in told
    assert "run once with" not in told
    told = markers.with_others(reason, ago=3_000, moves=False)
    assert "wrote a marker 3 s ago: if it still runs, end it first, and do not use" in told
    assert told.endswith(reason)
    assert markers.with_others(reason, ago=61_000, moves=False) == reason
